"""Forwarding: strided groups whose members are not neighbours send through the replicas between them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.cost.program_cost import price
from gcl.fabric.fabric import Fabric, Topology
from gcl.scheduling.methods import METHODS, Method
from gcl.scheduling.options import Options
from gcl.scheduling.schedule import Schedule, interpret, schedule

RINGS = [m for m in METHODS if m not in (Method.QUAD_DIRECTIONAL_RING, Method.BROADCAST)]
LARGER = [Fabric(9), Fabric(8, 2), Fabric(8, 2, topology=Topology.TORUS)]
FABRICS = [Fabric(16), Fabric(16, topology=Topology.TORUS), Fabric(12), Fabric(18), Fabric(32, domains=2)]
STRAIGHT = Options(use_forwarding_to_support_strided_groups=False)


def neighbours(fabric: Fabric, a: int, b: int) -> bool:
    """Whether two replicas have IPUs that share a cable."""
    return any(fabric.neighbours(ipu) & set(fabric.ipus_of(b)) for ipu in fabric.ipus_of(a))


def all_neighbours(plan: Schedule) -> bool:
    return all(
        neighbours(plan.fabric, sender, receiver)
        for program in plan.programs
        for exchange in program.exchanges
        for copy in exchange.copies
        for sender, receiver in copy.pairs()
    )


@pytest.mark.parametrize("fabric", FABRICS + LARGER, ids=str)
def test_a_route_goes_from_neighbour_to_neighbour(fabric: Fabric) -> None:
    for a in range(fabric.replicas_per_domain):
        for b in range(fabric.replicas_per_domain):
            way = fabric.way(a, b)
            assert (way[0], way[-1], len(set(way))) == (a, b, len(way))
            assert all(neighbours(fabric, first, other) for first, other in pairwise(way))


@pytest.mark.parametrize("method", RINGS)
@pytest.mark.parametrize(
    ("fabric", "stride"), [(f, s) for f in FABRICS for s in (2, 3, 4) if f.replicas_per_domain % s == 0], ids=str
)
def test_copies_are_between_neighbours_and_the_result_is_that_of_direct_copies(
    fabric: Fabric, stride: int, method: Method
) -> None:
    size = fabric.replicas_per_domain // stride
    group = Group(fabric.replicas, stride, size)
    x = np.random.default_rng(stride).standard_normal((fabric.replicas, 5 * size + 1)).astype(np.float32)
    plan = schedule(Collective.ALL_REDUCE, fabric, x.shape[1], group=group, methods=(method,))
    straight = schedule(Collective.ALL_REDUCE, fabric, x.shape[1], group=group, methods=(method,), options=STRAIGHT)
    assert all_neighbours(plan)
    assert interpret(plan, x).tobytes() == interpret(straight, x).tobytes()


def test_when_it_is_used() -> None:
    strided, method = Group(16, 4, 4), (Method.CLOCKWISE_RING,)

    def exchanges(fabric: Fabric, setting: bool | None) -> int:
        options = Options(use_forwarding_to_support_strided_groups=setting)
        return len(
            schedule(Collective.REDUCE_SCATTER, fabric, 1600, group=strided, methods=method, options=options)
            .programs[0]
            .exchanges
        )

    single, pair = Fabric(16), Fabric(16, 2)
    assert exchanges(single, None) == exchanges(single, True) > exchanges(single, False) == 3
    assert exchanges(pair, True) > exchanges(pair, None) == exchanges(pair, False) == 3


def test_every_hop_pays_a_sync() -> None:
    group, fabric = Group(16, 4, 4), Fabric(16)
    plan = schedule(Collective.REDUCE_SCATTER, fabric, 160_000, group=group, methods=(Method.CLOCKWISE_RING,))
    straight = schedule(
        Collective.REDUCE_SCATTER, fabric, 160_000, group=group, methods=(Method.CLOCKWISE_RING,), options=STRAIGHT
    )
    assert price(plan).total.sync > price(straight).total.sync
    assert price(plan).total.exchanges == len(plan.programs[0].exchanges)
