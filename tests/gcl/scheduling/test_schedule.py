"""Schedules: results against numpy, the three phases, groups over domains, chains of methods."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.groups import Group
from gcl.core.layout import PlainPadding, spread
from gcl.core.request import Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.methods import METHODS, Method
from gcl.scheduling.phases import levels
from gcl.scheduling.schedule import Schedule, interpret, schedule

ALL_REDUCE, SCATTER, GATHER = Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER
TORUS, TWIST = Topology.TORUS, LinkConfiguration.BARLEY_TWIST

FABRICS = [
    Fabric(1),
    Fabric(2),
    Fabric(3),
    Fabric(8),
    Fabric(16),
    Fabric(8, topology=TORUS),
    Fabric(8, 2),
    Fabric(8, 2, topology=TORUS),
    Fabric(4, 8, topology=TORUS),
    Fabric(8, domains=2),
    Fabric(12, 4, domains=3),
    Fabric(16, 2, 4, TORUS),
    Fabric(8, 1, 1, TORUS, TWIST),
    Fabric(16, 1, 2, TORUS, TWIST),
    Fabric(12, 1, 3, TORUS, TWIST),
]


def groups_of(fabric: Fabric) -> list[Group]:
    """Every group that fits the domains."""
    fitting = []
    for size in range(1, fabric.replicas + 1):
        for stride in range(1, fabric.replicas + 1):
            try:
                group = Group(fabric.replicas, stride, size)
                levels(group, fabric)
            except ArgumentError:
                continue
            fitting.append(group)
    return fitting


def methods_on(fabric: Fabric) -> list[Method]:
    twisted = fabric.configuration is TWIST
    return [Method.AUTO] + [m for m in METHODS if twisted or m is not Method.QUAD_DIRECTIONAL_RING]


def even(fabric: Fabric, group: Group) -> bool:
    """Whether every domain has an even number of replicas, which serpent rings need."""
    sizes = [level.size for level in levels(group, fabric) if level.inside]
    return fabric.configuration is not TWIST or all(size == 1 or size % 2 == 0 for size in sizes)


CASES = st.sampled_from(FABRICS).flatmap(
    lambda fabric: st.tuples(
        st.just(fabric),
        st.sampled_from([group for group in groups_of(fabric) if even(fabric, group)]),
        st.sampled_from(methods_on(fabric)),
        st.sampled_from([0, 1, 7, 100, 1003]),
    )
)


@given(CASES)
@settings(deadline=None, max_examples=150)
def test_all_reduce_is_the_sum_for_every_fabric_group_method_and_size(
    case: tuple[Fabric, Group, Method, int],
) -> None:
    fabric, group, method, n = case
    x = np.random.default_rng(n).integers(-9, 9, (fabric.replicas, n)).astype(np.int32)
    result = interpret(schedule(ALL_REDUCE, fabric, n, group=group, methods=(method,)), x)
    for members in group.all_members():
        assert (result[members] == x[members].sum(axis=0)).all()


@given(CASES)
@settings(deadline=None, max_examples=150)
def test_reduce_scatter_and_all_gather_hand_over_shards_in_group_order(
    case: tuple[Fabric, Group, Method, int],
) -> None:
    fabric, group, method, n = case
    x = np.random.default_rng(n).integers(-9, 9, (fabric.replicas, n)).astype(np.int32)
    plan = schedule(SCATTER, fabric, n, group=group, methods=(method,))
    shards = interpret(plan, x)
    splits = max(METHODS[Method(program.method)].splits for program in plan.programs)
    padding = PlainPadding(group.size, spread(n, fabric.ipus_per_replica), splits)
    for members in group.all_members():
        total = x[members].sum(axis=0)
        assert (shards[members] == padding.arrangement().shards(total)).all()
    gathered = interpret(schedule(GATHER, fabric, n, group=group, methods=(method,)), x)
    for members in group.all_members():
        assert (gathered[members] == x[members].reshape(-1)).all()


OPERATORS = {
    "add": lambda x: x.sum(axis=0),
    "mean": lambda x: x.sum(axis=0) / len(x),
    "mul": lambda x: x.prod(axis=0),
    "min": lambda x: x.min(axis=0),
    "max": lambda x: x.max(axis=0),
    "square_add": lambda x: (x**2).sum(axis=0),
}


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("fabric", [Fabric(4), Fabric(8, domains=2)])
def test_operators(name: str, fabric: Fabric) -> None:
    x = np.random.default_rng(6).random((fabric.replicas, 37))
    result = interpret(schedule(ALL_REDUCE, fabric, 37), x, name)
    assert np.allclose(result, OPERATORS[name](x), rtol=1e-12)


@pytest.mark.parametrize(("name", "expected"), [("logical_and", np.all), ("logical_or", np.any)])
def test_logical_operators(name: str, expected: object) -> None:
    x = np.random.default_rng(7).random((4, 37)) > 0.4
    assert (interpret(schedule(ALL_REDUCE, Fabric(4), 37), x, name) == expected(x, axis=0)).all()
    with pytest.raises(ArgumentError, match="it takes bool"):
        interpret(schedule(ALL_REDUCE, Fabric(4), 37), x.astype(np.float32), name)


def test_local_keeps_the_own_slice() -> None:
    x = np.arange(40.0).reshape(4, 10)
    plan = schedule(SCATTER, Fabric(4), 10, op="local")
    assert plan.bytes_sent(0) == 0
    assert interpret(plan, x, "local").tolist() == [[0, 1, 2], [13, 14, 15], [26, 27, 28], [39, 0, 0]]
    with pytest.raises(ArgumentError, match="only reduce_scatter has it"):
        schedule(ALL_REDUCE, Fabric(4), 10, op="local")


def test_three_phases_of_the_reference() -> None:
    """2 Pods of 2 replicas: 4 6 12 14 after the first phase, 16 20 16 20 after the second."""
    fabric = Fabric(4, domains=2)
    x = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    plan = schedule(ALL_REDUCE, fabric, 2)
    assert [phase.links for phase in plan.phases] == ["IPU-Links", "GW-Links", "GW-Links", "IPU-Links"]
    first = Schedule(SCATTER, fabric, plan.group, 2, 4, plan.phases[:1])
    assert interpret(first, x).reshape(-1).tolist() == [4, 6, 12, 14]
    second = Schedule(ALL_REDUCE, fabric, plan.group, 2, 4, plan.phases[:3])
    assert interpret(second, x).reshape(-1).tolist() == [16, 20, 16, 20]
    assert interpret(plan, x).tolist() == [[16, 20]] * 4


@pytest.mark.parametrize(("domains", "ipus"), [(2, 1), (4, 1), (2, 4)])
def test_bytes_of_the_three_phases(domains: int, ipus: int) -> None:
    """(R - 1)/R S, 2 (L - 1)/L S/R, (R - 1)/R S, with R = 64 / ipusPerReplica."""
    here = 64 // ipus
    fabric = Fabric(here * domains, ipus, domains)
    size = here * domains * ipus * 10
    plan = schedule(ALL_REDUCE, fabric, size, itemsize=2, methods=(Method.CLOCKWISE_RING,))
    sent = [Fraction(program.elements_sent(0), size) for program in plan.programs]
    inside, across = Fraction(here - 1, here), Fraction(domains - 1, domains * here)
    assert sent == [inside, across, across, inside]
    assert plan.bytes_sent(0) == 2 * (inside + across) * size * 2
    groups = [program.group for program in plan.programs]
    assert groups[0] == Group.consecutive(fabric.replicas, here)
    assert groups[1] == Group.orthogonal(fabric.replicas, domains)


def test_the_middle_phase_joins_equal_places_and_rings_never_leave_their_domain() -> None:
    fabric = Fabric(32, domains=4)
    for phase in schedule(ALL_REDUCE, fabric, 64).phases:
        for exchange in phase.program.exchanges:
            for copy in exchange.copies:
                for sender, receiver in copy.pairs():
                    same_domain = sender // 8 == receiver // 8
                    assert same_domain == (phase.links == "IPU-Links")
                    assert same_domain or sender % 8 == receiver % 8


@pytest.mark.parametrize(
    "fabric", [fabric for fabric in FABRICS if fabric.ipus_per_replica == 1 and fabric.ipus % 2 == 0]
)
def test_every_transfer_of_a_ring_method_passes_one_link(fabric: Fabric) -> None:
    for method in methods_on(fabric):
        if method is Method.BROADCAST:
            continue
        for program in schedule(
            ALL_REDUCE, fabric, 64, methods=(method,) * (1 if fabric.domains == 1 else 4)
        ).programs:
            pairs = {pair for exchange in program.exchanges for copy in exchange.copies for pair in copy.pairs()}
            assert all(len(fabric.route(*pair)) == 1 for pair in pairs)


def test_all_reduce_chooses_a_method_for_each_half() -> None:
    plan = schedule(ALL_REDUCE, Fabric(16), 25_550_000, itemsize=2)
    assert [program.method for program in plan.programs] == ["bidirectional_ring_pair", "meet_in_middle_ring"]
    plan = schedule(ALL_REDUCE, Fabric(64), 25_550_000, itemsize=2)
    assert [program.method for program in plan.programs] == ["meet_in_middle_ring"] * 2


A, B, C, D = (
    Method.CLOCKWISE_RING,
    Method.ANTICLOCKWISE_RING,
    Method.MEET_IN_MIDDLE_RING,
    Method.BIDIRECTIONAL_RING_PAIR,
)


@pytest.mark.parametrize(
    ("domains", "chain", "expected"),
    [
        (1, (A,), [A, A]),
        (1, (A, B), [A, B]),
        (2, (A,), [A, A, A, A]),
        (2, (A, B), [A, A, B, B]),
        (2, (A, B, C, D), [A, B, C, D]),
    ],
)
def test_chains_of_methods(domains: int, chain: tuple[Method, ...], expected: list[Method]) -> None:
    plan = schedule(ALL_REDUCE, Fabric(16, domains=domains), 1003, methods=chain)
    assert [program.method for program in plan.programs] == expected
    x = np.random.default_rng(8).integers(-9, 9, (16, 1003))
    assert (interpret(plan, x) == x.sum(axis=0)).all()


@pytest.mark.parametrize(("domains", "chain", "allowed"), [(1, (A, B, C), "1 or 2"), (2, (A, B, C), "1 or 2 or 4")])
def test_chains_that_do_not_fit(domains: int, chain: tuple[Method, ...], allowed: str) -> None:
    with pytest.raises(ArgumentError, match=f"3 methods .* name {allowed}"):
        schedule(ALL_REDUCE, Fabric(16, domains=domains), 10, methods=chain)


def test_groups_and_domains() -> None:
    fabric = Fabric(16, domains=2)

    def parts(group: Group) -> list[tuple[Group, bool]]:
        return [(level.group, level.inside) for level in levels(group, fabric)]

    assert parts(Group.all(16)) == [(Group.consecutive(16, 8), True), (Group.orthogonal(16, 2), False)]
    assert parts(Group.consecutive(16, 4)) == [(Group.consecutive(16, 4), True)]
    assert parts(Group.orthogonal(16, 2)) == [(Group.orthogonal(16, 2), False)]
    assert parts(Group.orthogonal(16, 8)) == [(Group(16, 2, 4), True), (Group(16, 8, 2), False)]
    with pytest.raises(ArgumentError, match=r"group.*domain"):
        levels(Group.consecutive(12, 4), Fabric(12, domains=2))


def test_half_precision_travels_as_half() -> None:
    x = np.full((4, 4), 1.0, np.float16)
    x[0] = 2048  # 2048 + 1 is not a half
    plan = schedule(ALL_REDUCE, Fabric(4), 4, itemsize=2, methods=(A,))
    # ring 0 2 3 1, rounded at each step: 2048 + 3, 2048 + 1 + 1 + 1, (2048 + 2) + 1, (1 + 2048) + 1 + 1
    assert interpret(plan, x)[0].tolist() == [2052, 2048, 2052, 2048]


def test_between_domains_the_quad_method_is_the_bidirectional_pair() -> None:
    plan = schedule(ALL_REDUCE, Fabric(12, 1, 3, TORUS, TWIST), 64, methods=(Method.QUAD_DIRECTIONAL_RING,))
    inside, across = Method.QUAD_DIRECTIONAL_RING, Method.BIDIRECTIONAL_RING_PAIR
    assert [program.method for program in plan.programs] == [inside, across, across, inside]
    with pytest.raises(ArgumentError, match="it needs barley_twist"):
        schedule(ALL_REDUCE, Fabric(3, domains=3), 64, methods=(Method.QUAD_DIRECTIONAL_RING,))


def test_operators_are_named_in_any_letter_case() -> None:
    assert schedule(Collective.REDUCE_SCATTER, Fabric(4), 8, op="LOCAL").bytes_sent(0) == 0


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"4 replicas.*fabric.*8"):
        schedule(ALL_REDUCE, Fabric(8), 10, group=Group.all(4))
    with pytest.raises(ArgumentError, match=r"dimension 0.*8"):
        schedule(Collective.ALL_TO_ALL, Fabric(8), 10)
    with pytest.raises(ArgumentError, match="root 8 is not a member of the group; use 0 to 7"):
        schedule(Collective.BROADCAST, Fabric(8), 10, root=8)
    with pytest.raises(ArgumentError, match="use auto"):
        schedule(Collective.ALL_TO_ALL, Fabric(8), 16, methods=(A,))
    with pytest.raises(ArgumentError, match="it needs barley_twist"):
        schedule(ALL_REDUCE, Fabric(8), 16, methods=(Method.QUAD_DIRECTIONAL_RING,))
    with pytest.raises(ArgumentError, match="elements=-1 is not valid"):
        schedule(ALL_REDUCE, Fabric(8), -1)
