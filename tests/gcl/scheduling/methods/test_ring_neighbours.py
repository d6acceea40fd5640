"""Replica maps of every ring method: only neighbours in the ring, and within a domain except in the middle phase."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.methods import METHODS, Method
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.schedule import Schedule, schedule

COLLECTIVES = [Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    method = draw(st.sampled_from([m for m in METHODS if m is not Method.BROADCAST]))
    twisted = method is Method.QUAD_DIRECTIONAL_RING
    ipus = 1 if twisted else draw(st.sampled_from([1, 2, 4]))
    domains = draw(st.sampled_from([1, 2, 3]))
    here = draw(st.sampled_from([2, 4, 8] if twisted else [1, 2, 3, 4, 6, 8]))
    topology = Topology.TORUS if twisted else draw(st.sampled_from(list(Topology)))
    configuration = LinkConfiguration.BARLEY_TWIST if twisted else LinkConfiguration.DEFAULT
    fabric = Fabric(here * domains, ipus, domains, topology, configuration)
    collective = draw(st.sampled_from(COLLECTIVES))
    n = draw(st.integers(1, 200))
    groups = [Group.all(fabric.replicas), Group.consecutive(fabric.replicas, here)]
    groups += [Group.orthogonal(fabric.replicas, domains)] if domains > 1 else []
    return schedule(collective, fabric, n, group=draw(st.sampled_from(groups)), methods=(method,))


def steps_between(phase: ProgramPhase, mirrored: bool, sender: int, receiver: int) -> int:
    """The number of positions from ``sender`` to ``receiver`` in the ring."""
    group, order = phase.program.group, phase.program.orders[mirrored]
    places = [order.index(group.index(replica)) for replica in (sender, receiver)]
    return (places[1] - places[0]) % len(order)


@settings(deadline=None, max_examples=150)
@given(schedules())
def test_copies_go_one_step_round_their_ring(plan: Schedule) -> None:
    domain = plan.fabric.replicas_per_domain
    for phase in plan.phases:
        group = phase.program.group
        for exchange in phase.program.exchanges:
            for copy in exchange.copies:
                assert sorted(copy.to) == list(range(group.replicas))  # all are keys, and all receive
                for sender, receiver in copy.pairs():
                    assert group.of(sender) == group.of(receiver)
                    step = 1 if copy.stream.startswith("clockwise") else group.size - 1
                    assert steps_between(phase, "mirrored" in copy.stream, sender, receiver) == step
                    same = sender // domain == receiver // domain
                    assert same == (phase.links == "IPU-Links")
                    assert same or sender % domain == receiver % domain  # phase 2: equal places of two domains


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([2, 4, 8]), st.sampled_from([2, 3, 4]), st.integers(1, 500))
def test_bytes_of_the_three_phases(here: int, domains: int, width: int) -> None:
    """Section 10: (R - 1)/R S, then 2(L - 1)/L S/R, then (R - 1)/R S."""
    elements = here * domains * width
    plan = schedule(
        Collective.ALL_REDUCE, Fabric(here * domains, 1, domains), elements, methods=(Method.CLOCKWISE_RING,)
    )
    sent = [program.elements_sent(0) for program in plan.programs]
    assert sent[0] == sent[3] == elements * (here - 1) // here
    assert sent[1] + sent[2] == 2 * (domains - 1) * elements // here // domains
