"""Methods: their drawings, steps, bytes, order of additions, and results.

The drawing in a docstring is the one that the program makes; counts are the formulas of the docstrings, which are
those of the reference; results are compared with numpy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.fabric.ring_order import Order, inverse, ring
from gcl.scheduling.methods import METHODS, Method, RingTrack, all_to_all, broadcast, local
from gcl.scheduling.methods.quad_directional_ring import quarter_sizes
from gcl.scheduling.program.interpreter import run
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, Exchange, Reduce, StepProgram
from gcl.scheduling.program.text_diagram import exchange_table
from gcl.scheduling.schedule import schedule

SCATTER, GATHER = Collective.REDUCE_SCATTER, Collective.ALL_GATHER
RING_METHODS = [method for method in METHODS if method is not Method.BROADCAST]
SINGLE_RINGS = [method for method in RING_METHODS if method is not Method.QUAD_DIRECTIONAL_RING]


def orders_of(method: Method, n: int, order: Order = Order.INTERLEAVED) -> tuple[tuple[int, ...], ...]:
    if method is Method.QUAD_DIRECTIONAL_RING:
        return ring(Order.SERPENT, n), ring(Order.MIRRORED_SERPENT, n)
    return (ring(order, n),)


def program(
    method: Method,
    collective: Collective,
    group: Group,
    widths: tuple[int, ...] = (8,),
    order: Order = Order.INTERLEAVED,
) -> StepProgram:
    track = RingTrack(group, orders_of(method, group.size, order), widths)
    generate = METHODS[method].reduce_scatter if collective is SCATTER else METHODS[method].all_gather
    fragments = (group.size, 1) if collective is SCATTER else (1, group.size)
    return StepProgram(collective, method, group, widths, *fragments, tuple(generate(track)), track.orders)


def cases(*lengths: int) -> list[tuple[Method, int]]:
    """Every method on rings of these lengths; serpent rings use every rung, so they are even."""
    return [(m, n) for m in METHODS for n in lengths if m is not Method.QUAD_DIRECTIONAL_RING or n == 1 or n % 2 == 0]


def drawn(function: Callable[..., object]) -> str:
    """The drawing in a docstring."""
    lines = (inspect.getdoc(function) or "").split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("replica "))
    return inspect.cleandoc("\n" + "\n".join(lines[first:]))


@pytest.mark.parametrize("collective", [SCATTER, GATHER])
@pytest.mark.parametrize("method", list(METHODS))
def test_the_drawing_is_the_program(method: Method, collective: Collective) -> None:
    twisted = method is Method.QUAD_DIRECTIONAL_RING
    fabric = Fabric(4, 1, 1, Topology.TORUS, LinkConfiguration.BARLEY_TWIST) if twisted else Fabric(4)
    plan = schedule(collective, fabric, 400, methods=(method,))
    function = METHODS[method].reduce_scatter if collective is SCATTER else METHODS[method].all_gather
    assert drawn(function) == exchange_table(plan.programs[0])


def test_the_drawings_of_the_direct_collectives() -> None:
    fabric = Fabric(4)
    sent = schedule(Collective.BROADCAST, fabric, 400, root=1).programs[0]
    assert drawn(broadcast.broadcast) == exchange_table(sent)
    swapped = schedule(Collective.ALL_TO_ALL, fabric, 400).programs[0]
    assert drawn(all_to_all.all_to_all) == exchange_table(swapped)


def test_clockwise_example_of_the_reference() -> None:
    """Section 6: ring 0 2 3 1, fragments named by their owner, columns 0 to 2, 2 to 3, 3 to 1, 1 to 0."""
    reference = [[1, 0, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]]
    step_program = program(Method.CLOCKWISE_RING, SCATTER, Group.all(4))
    copies = [exchange.copies[0] for exchange in step_program.exchanges]
    assert [[copy.carries[r] for r in (0, 2, 3, 1)] for copy in copies] == reference
    assert all(copy.to == (2, 0, 3, 1) for copy in copies)


EXCHANGES: dict[Method, Callable[[int], int]] = {
    Method.CLOCKWISE_RING: lambda n: n - 1,
    Method.ANTICLOCKWISE_RING: lambda n: n - 1,
    Method.BIDIRECTIONAL_RING_PAIR: lambda n: n - 1,
    Method.MEET_IN_MIDDLE_RING: lambda n: n // 2,
    Method.QUAD_DIRECTIONAL_RING: lambda n: n - 1,
    Method.BROADCAST: lambda n: min(1, n - 1),
}
#: The part of S that a replica sends over its busiest link, which determines the time; section 13.
BUSIEST: dict[Method, Callable[[int], Fraction]] = {
    Method.CLOCKWISE_RING: lambda n: Fraction(n - 1, n),
    Method.ANTICLOCKWISE_RING: lambda n: Fraction(n - 1, n),
    Method.BIDIRECTIONAL_RING_PAIR: lambda n: Fraction(n - 1, 2 * n),
    Method.MEET_IN_MIDDLE_RING: lambda n: Fraction(n // 2, n),
    Method.QUAD_DIRECTIONAL_RING: lambda n: Fraction(n - 1, 4 * n),
}
WAYS = {Method.BIDIRECTIONAL_RING_PAIR: 2, Method.MEET_IN_MIDDLE_RING: 2, Method.QUAD_DIRECTIONAL_RING: 4}


@pytest.mark.parametrize("collective", [SCATTER, GATHER])
@pytest.mark.parametrize(("method", "n"), cases(1, 2, 3, 4, 5, 7, 8, 16, 64))
def test_exchanges_and_bytes_are_those_of_the_reference(method: Method, n: int, collective: Collective) -> None:
    width = 12
    step_program = program(method, collective, Group.all(n), (width,))
    total = n * width
    assert len(step_program.exchanges) == EXCHANGES[method](n)
    ways: dict[str, int] = {}
    for exchange in step_program.exchanges:
        for copy in exchange.copies:
            ways[copy.stream] = ways.get(copy.stream, 0) + copy.source.elements
    assert step_program.elements_sent(0) == sum(ways.values())
    if method is Method.BROADCAST or (method is Method.MEET_IN_MIDDLE_RING and n <= 2):
        assert sum(ways.values()) == (n - 1) * width
    elif n > 1:
        assert len(ways) == WAYS.get(method, 1)
        assert {Fraction(sent, total) for sent in ways.values()} == {BUSIEST[method](n)}


@pytest.mark.parametrize("collective", [SCATTER, GATHER])
@pytest.mark.parametrize("n", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("method", RING_METHODS)
def test_maps_name_every_replica_and_touch_only_ring_neighbours(
    method: Method, n: int, collective: Collective
) -> None:
    step_program = program(method, collective, Group.consecutive(3 * n, n))
    for exchange in step_program.exchanges:
        for copy in exchange.copies:
            assert sorted(copy.to) == list(range(3 * n))  # every replica sends and receives once
            order = step_program.orders["mirrored" in copy.stream]
            step = 1 if copy.stream.startswith("clockwise") else -1
            places = inverse(order)
            for sender, receiver in copy.pairs():
                assert sender // n == receiver // n  # rings stay in their group
                assert (places[sender % n] + step) % n == places[receiver % n]


def transfers(step_program: StepProgram) -> list[tuple[int, int, set[int], set[int]]]:
    """(exchange, replica, elements read, elements written) of every exchange and replica, per buffer."""
    rows = []
    for number, exchange in enumerate(step_program.exchanges):
        for buffer in step_program.buffers:
            read: dict[int, set[int]] = {}
            written: dict[int, set[int]] = {}
            for copy in exchange.copies:
                for sender, receiver in copy.pairs():
                    for part, replica, where in ((copy.source, sender, read), (copy.target, receiver, written)):
                        if part.buffer == buffer:
                            bounds = part.bounds(replica, step_program.width)
                            where.setdefault(replica, set()).update(range(bounds.start, bounds.stop))
            rows += [
                (number, r, read.get(r, set()), written.get(r, set())) for r in range(step_program.group.replicas)
            ]
    return rows


@pytest.mark.parametrize("collective", [SCATTER, GATHER])
@pytest.mark.parametrize(("method", "n"), cases(2, 3, 4, 8))
def test_no_copy_of_an_exchange_reads_what_another_writes(method: Method, n: int, collective: Collective) -> None:
    for number, replica, read, written in transfers(program(method, collective, Group.all(n), (5, 3))):
        assert not read & written, (number, replica)


def expression(step_program: StepProgram) -> np.ndarray:
    """The expression that every replica computes; contributions are named by their position in the group."""
    n, width = step_program.group.replicas, step_program.width
    names = np.empty((n, step_program.input_fragments * width), object)
    names[...] = np.array([[str(step_program.group.index(r))] for r in range(n)], object)
    joined = np.frompyfunc(lambda own, received: f"({own}+{received})", 2, 1)
    return run(step_program, names, joined)


def chain(*order: int) -> str:
    """The sum in which each step is own + received: the first in ``order`` starts."""
    text = str(order[0])
    for own in order[1:]:
        text = f"({own}+{text})"
    return text


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_order_of_additions_clockwise_and_anticlockwise(n: int) -> None:
    clockwise = expression(program(Method.CLOCKWISE_RING, SCATTER, Group.all(n), (2,), Order.FLAT))
    anticlockwise = expression(program(Method.ANTICLOCKWISE_RING, SCATTER, Group.all(n), (2,), Order.FLAT))
    direct = expression(program(Method.BROADCAST, SCATTER, Group.all(n), (2,), Order.FLAT))
    for p in range(n):
        assert clockwise[p].tolist() == [chain(*((p + k) % n for k in range(1, n + 1)))] * 2
        assert anticlockwise[p].tolist() == [chain(*((p - k) % n for k in range(1, n + 1)))] * 2
    assert (direct == clockwise).all()


def test_order_of_additions_follows_the_ring() -> None:
    sums = expression(program(Method.CLOCKWISE_RING, SCATTER, Group.all(4), (1,)))  # ring 0 2 3 1
    assert sums[3, 0] == chain(1, 0, 2, 3)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_bidirectional_sends_the_first_half_clockwise(width: int) -> None:
    n = 4
    sums = expression(program(Method.BIDIRECTIONAL_RING_PAIR, SCATTER, Group.all(n), (width,), Order.FLAT))
    for p in range(n):
        ahead, behind = (chain(*((p + s * k) % n for k in range(1, n + 1))) for s in (1, -1))
        assert sums[p].tolist() == [ahead] * (width // 2) + [behind] * (width - width // 2)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 9])
def test_order_of_additions_meeting_in_the_middle(n: int) -> None:
    sums = expression(program(Method.MEET_IN_MIDDLE_RING, SCATTER, Group.all(n), (1,), Order.FLAT))
    half = n // 2
    useful = n - 1 - half
    for p in range(n):
        clockwise = chain(*((p - k) % n for k in range(half, -1, -1)))
        anticlockwise = chain(*((p + k) % n for k in range(useful, 0, -1)))
        assert sums[p, 0] == f"({clockwise}+{anticlockwise})"


@pytest.mark.parametrize(
    ("width", "sizes"), [(0, [0, 0, 0, 0]), (4, [1, 1, 1, 1]), (5, [2, 1, 1, 1]), (7, [2, 2, 2, 1])]
)
def test_quarters(width: int, sizes: list[int]) -> None:
    assert quarter_sizes(width) == sizes


def test_the_quad_method_uses_each_serpent_both_ways() -> None:
    sums = expression(program(Method.QUAD_DIRECTIONAL_RING, SCATTER, Group.all(8), (4,)))
    serpent, mirrored = ring(Order.SERPENT, 8), ring(Order.MIRRORED_SERPENT, 8)
    for replica in range(8):
        expected = []
        for order, step in ((serpent, 1), (mirrored, 1), (serpent, -1), (mirrored, -1)):
            place = order.index(replica)
            expected.append(chain(*(order[(place + step * k) % 8] for k in range(1, 9))))
        assert sums[replica].tolist() == expected


def test_a_redundant_transfer_is_never_read() -> None:
    for n in (4, 6, 8):
        step_program = program(Method.MEET_IN_MIDDLE_RING, SCATTER, Group.all(n))
        redundant = [(i, c) for i, e in enumerate(step_program.exchanges) for c in e.copies if c.redundant]
        assert [(i, copy.stream) for i, copy in redundant] == [(0, "anticlockwise")]
        gather = program(Method.MEET_IN_MIDDLE_RING, GATHER, Group.all(n))
        assert [i for i, e in enumerate(gather.exchanges) for c in e.copies if c.redundant] == [n // 2 - 1]
    for n in (3, 5, 7):  # odd rings use every transfer
        step_program = program(Method.MEET_IN_MIDDLE_RING, SCATTER, Group.all(n))
        assert not any(copy.redundant for exchange in step_program.exchanges for copy in exchange.copies)


GROUPS = st.builds(
    lambda stride, size, times: Group(stride * size * times, 1 if size == 1 else stride, size),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(1, 2),
).filter(lambda group: group.size > 1 or group.stride == 1)


@settings(deadline=None)
@given(
    GROUPS, st.sampled_from([*SINGLE_RINGS, Method.BROADCAST]), st.lists(st.integers(0, 5), min_size=1, max_size=3)
)
def test_results_for_any_group(group: Group, method: Method, widths: list[int]) -> None:
    rng = np.random.default_rng(3)
    width = sum(widths)
    scatter = program(method, SCATTER, group, tuple(widths))
    x = rng.integers(-9, 9, (group.replicas, group.size * width))
    sums = run(scatter, x)
    gather = program(method, GATHER, group, tuple(widths))
    shards = rng.integers(-9, 9, (group.replicas, width))
    gathered = run(gather, shards)
    for members in group.all_members():
        expected = x[members].sum(axis=0).reshape(group.size, width)
        assert (sums[members] == expected).all()
        assert (gathered[members] == shards[members].reshape(-1)).all()


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_results_of_the_quad_method(n: int) -> None:
    x = np.random.default_rng(4).integers(-9, 9, (n, n * 7))
    sums = run(program(Method.QUAD_DIRECTIONAL_RING, SCATTER, Group.all(n), (7,)), x)
    assert (sums == x.sum(axis=0).reshape(n, 7)).all()
    gathered = run(program(Method.QUAD_DIRECTIONAL_RING, GATHER, Group.all(n), (7,)), sums)
    assert (gathered == x.sum(axis=0)).all()


def test_all_to_all_keeps_the_own_slice_and_swaps_the_others() -> None:
    n = 5
    x = np.arange(n * n * 2).reshape(n, n * 2)
    step_program = schedule(Collective.ALL_TO_ALL, Fabric(n), n * 2).programs[0]
    assert (run(step_program, x).reshape(n, n, 2) == x.reshape(n, n, 2).transpose(1, 0, 2)).all()
    assert len(step_program.exchanges) == n - 1
    for s, exchange in enumerate(step_program.exchanges):
        (copy,) = exchange.copies
        for r in range(n):
            assert copy.to[r] == copy.source.fragment[r] == (r + s + 1) % n
            assert copy.target.fragment[r] == (r - s - 1) % n


def test_broadcast_gives_all_replicas_the_data_of_the_root() -> None:
    group = Group(6, 2, 3)
    x = np.arange(12).reshape(6, 2)
    plan = schedule(Collective.BROADCAST, Fabric(6), 2, group=group, root=1)
    for members in group.all_members():
        assert (run(plan.programs[0], x)[members] == x[members[1]]).all()
    assert [plan.programs[0].elements_sent(r) for r in range(6)] == [0, 0, 4, 4, 0, 0]


def test_local_keeps_its_own_fragment_and_sends_nothing() -> None:
    group = Group.all(4)
    track = RingTrack(group, (ring(Order.FLAT, 4),), (3,))
    step_program = StepProgram(SCATTER, "local", group, (3,), 4, 1, tuple(local.reduce_scatter(track)))
    x = np.arange(48).reshape(4, 12)
    assert (run(step_program, x) == [x[r, 3 * r : 3 * r + 3] for r in range(4)]).all()
    assert not step_program.exchanges


def test_the_docstring_example() -> None:
    x = np.array([[1.0, 2, 3, 4], [10, 20, 30, 40]])
    for method in RING_METHODS:
        shards = run(program(method, SCATTER, Group.all(2), (2,)), x)
        assert shards.tolist() == [[11, 22], [33, 44]]
        assert run(program(method, GATHER, Group.all(2), (2,)), shards).tolist() == [[11, 22, 33, 44]] * 2


def test_a_program_prints() -> None:
    text = str(program(Method.CLOCKWISE_RING, SCATTER, Group.all(3), (2,), Order.FLAT))
    assert text.split("\n")[1:4] == [
        "Exchange",
        "  CrossReplicaCopy input[2 0 1][0:2] -> clockwise received[0][0:2] to 1 2 0 (clockwise, IPU 0)",
        "Reduce input[1 2 0][0:2] op clockwise received[0][0:2] -> clockwise[0][0:2]",
    ]


def test_a_program_is_only_three_kinds_of_step_over_named_buffers() -> None:
    step_program = program(Method.MEET_IN_MIDDLE_RING, SCATTER, Group.all(8))
    assert {type(step) for step in step_program.steps} <= {Exchange, Reduce, Copy}
    assert step_program.buffers[:2] == [INPUT, OUTPUT]
    assert step_program.fragments(INPUT) == 8
    assert step_program.fragments("clockwise received") == 1
