"""Modelled seconds, against the figures of the reference and against a loop over links."""

from __future__ import annotations

from collections import Counter

import pytest

from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.cost.program_cost import BOW_CLOCK, Cost, price, sync_seconds
from gcl.errors import ArgumentError
from gcl.fabric.fabric import LINK_BANDWIDTH, Fabric, LinkClass, LinkConfiguration, Topology
from gcl.scheduling.methods import Method
from gcl.scheduling.options import Options
from gcl.scheduling.schedule import schedule

ALL_REDUCE, SCATTER, GATHER = Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER
RAIL = LINK_BANDWIDTH[LinkClass.UP]
CLOCKWISE, PAIR = Method.CLOCKWISE_RING, Method.BIDIRECTIONAL_RING_PAIR
MEET, QUAD = Method.MEET_IN_MIDDLE_RING, Method.QUAD_DIRECTIONAL_RING


def transfer(fabric: Fabric, method: Method, collective: Collective = ALL_REDUCE, nbytes: int = 51_100_000) -> float:
    return price(schedule(collective, fabric, nbytes // 2, itemsize=2, methods=(method,))).total.transfer


@pytest.mark.parametrize(("method", "milliseconds"), [(CLOCKWISE, 3.28), (PAIR, 1.64), (MEET, 1.75)])
def test_all_reduce_example_of_the_reference(method: Method, milliseconds: float) -> None:
    """51.1 MB at n = 16, syncs excluded; both halves of the all-reduce."""
    assert round(transfer(Fabric(16), method) * 1e3, 2) == milliseconds


@pytest.mark.parametrize("n", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("collective", [SCATTER, GATHER])
def test_formulas_of_the_reference(collective: Collective, n: int) -> None:
    """(n-1)/n S/B, half and (barley twist) a quarter of it, and 1/2 S/B."""
    size = 64 * n * 1000
    elements = size // 2 if collective is SCATTER else size // 2 // n
    mesh = Fabric(n)
    expected = {CLOCKWISE: (n - 1) / n, PAIR: (n - 1) / (2 * n), MEET: 1 / 2}
    for method, factor in expected.items():
        plan = schedule(collective, mesh, elements, itemsize=2, methods=(method,))
        assert price(plan).total.transfer == pytest.approx(factor * size / RAIL)
    if n >= 8:  # on one machine a serpent's last hop has no loop-back of its own
        twisted = Fabric(n, 1, 1, Topology.TORUS, LinkConfiguration.BARLEY_TWIST)
        plan = schedule(collective, twisted, elements, itemsize=2, methods=(QUAD,))
        assert price(plan).total.transfer == pytest.approx((n - 1) / (4 * n) * size / RAIL)


def test_bus_bandwidth_factor() -> None:
    plan = schedule(ALL_REDUCE, Fabric(16), 16_000, methods=(CLOCKWISE,))
    assert plan.bytes_sent(3) == 2 * 15 / 16 * 64_000


@pytest.mark.parametrize(("ipus", "nanoseconds"), [(2, 30), (4, 60), (8, 90), (16, 150), (32, 270), (64, 510)])
def test_sync(ipus: int, nanoseconds: int) -> None:
    least = 600 / BOW_CLOCK
    assert sync_seconds(ipus) == pytest.approx(max(nanoseconds * 1e-9, least))
    assert sync_seconds(ipus, clock=1e12) == pytest.approx(nanoseconds * 1e-9)


def test_every_exchange_pays_one_sync() -> None:
    cost = price(schedule(ALL_REDUCE, Fabric(16), 1000, methods=(CLOCKWISE,))).total
    assert cost.exchanges == 30
    assert cost.sync == pytest.approx(30 * sync_seconds(16))
    assert cost.hops == pytest.approx(30 * 15e-9)
    assert cost.seconds == pytest.approx(cost.transfer + cost.hops + cost.sync + cost.compute)


@pytest.mark.parametrize(
    "fabric", [Fabric(8), Fabric(8, topology=Topology.TORUS), Fabric(4, 4), Fabric(4, 4, topology=Topology.TORUS)]
)
@pytest.mark.parametrize("collective", [Collective.ALL_TO_ALL, ALL_REDUCE, Collective.BROADCAST])
def test_links_are_shared(fabric: Fabric, collective: Collective) -> None:
    """The same sums by a plain loop over every transfer of every exchange."""
    plan = schedule(collective, fabric, 3200, itemsize=2)
    seconds = 0.0
    for program in plan.programs:
        for exchange in program.exchanges:
            through: Counter[tuple[int, LinkClass]] = Counter()
            for copy in exchange.copies:
                for sender, receiver in enumerate(copy.to):
                    if sender == receiver:
                        continue
                    a, b = (fabric.ipus_of(r)[copy.ipu] for r in (sender, receiver))
                    for hop in fabric.route(a, b):
                        through[hop.owner, hop.link] += 2 * (copy.source.high - copy.source.low)
            seconds += max(nbytes / LINK_BANDWIDTH[link] for (_, link), nbytes in through.items())
    assert price(plan).total.transfer == pytest.approx(seconds)


def test_several_ipus_share_the_work_and_have_a_rail_each() -> None:
    """A mesh of 4 replicas of 2 IPUs, ring 0 2 3 1: hops over a replica and hops to the next use different rails."""
    two = price(schedule(SCATTER, Fabric(4, 2), 80_000, methods=(CLOCKWISE,))).total
    fragment_per_ipu = 80_000 * 4 / 4 / 2
    assert two.transfer == pytest.approx(3 * fragment_per_ipu / RAIL)


def test_the_middle_phase_goes_over_gw_links() -> None:
    """Four IPUs of a machine share 25 GB/s: 6.25 each."""
    fabric = Fabric(128, domains=2)
    size = 128 * 4000
    phases = price(schedule(ALL_REDUCE, fabric, size, itemsize=2, methods=(CLOCKWISE,))).phases
    shard = size * 2 / 64
    assert phases[1].transfer == pytest.approx(shard / 2 / 6.25e9)
    assert phases[2].transfer == pytest.approx(phases[1].transfer)
    assert phases[0].transfer == pytest.approx(63 / 64 * size * 2 / RAIL)


def compute(elements: int, options: str = "{}", **variables: str) -> float:
    parsed = Options.from_environ({"GCL_OPTIONS": options} | variables)
    return price(schedule(ALL_REDUCE, Fabric(4), elements, methods=(CLOCKWISE,), options=parsed)).total.compute


def test_tiles_work_between_exchanges() -> None:
    """4 replicas, 64 elements of every fragment on each tile: calls of 288 cycles, 8 bytes a cycle, 4 to select."""
    elements = 1472 * 4 * 64
    on_tile = 64 * 4  # bytes of a fragment on each tile
    # reduce-scatter: 3 sums, each of which selects its own part (a dynamic slice: 64 elements) and 1 source
    scatter = 3 * (288 + on_tile / 8) + 4 * on_tile / 4
    gather = 288 + on_tile / 8 + (1 + 3 * 2) * on_tile / 4  # copy the own shard, then 3 times forward and store
    assert compute(elements) == pytest.approx((scatter + gather) / BOW_CLOCK)


def test_io_tiles_take_longer_the_fewer_they_are() -> None:
    times = [compute(1_000_000, GCL_NUM_IO_TILES=str(tiles)) for tiles in (32, 64, 192, 1470)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 4 * times[2]
    assert times[-1] > compute(1_000_000)  # the tensor must first be copied to the I/O tiles


def test_the_plain_layout_has_fewer_cycles_and_more_memory() -> None:
    prices = {}
    for layout in ("true", "false"):
        options = Options.from_environ({"GCL_OPTIONS": f'{{"syncful.useOptimisedLayout": {layout}}}'})
        for n in (1000, 1_000_000):
            cost = price(schedule(ALL_REDUCE, Fabric(16), n, options=options))
            prices[layout, n] = (cost.total.compute, cost.tile_memory.code)
    assert prices["false", 1000][0] < prices["true", 1000][0]  # 32 elements on one tile, or one on each of 32
    assert prices["false", 1_000_000][0] <= prices["true", 1_000_000][0]
    for n in (1000, 1_000_000):
        assert prices["false", n][1] == prices["true", n][1] + 16 * 96


def test_the_reorder_before_an_all_reduce_gives_every_tile_work() -> None:
    """A plain reduce-scatter has a fragment on few tiles, which take longer."""
    n = 16 * 1472 * 8
    plain = price(schedule(SCATTER, Fabric(16), n, methods=(CLOCKWISE,))).total
    balanced = price(schedule(ALL_REDUCE, Fabric(16), n, methods=(CLOCKWISE,))).phases[0]
    assert balanced.compute < plain.compute
    assert balanced.transfer == plain.transfer


def test_groups_run_at_the_same_time() -> None:
    single = price(schedule(ALL_REDUCE, Fabric(4), 4000)).total
    four = price(schedule(ALL_REDUCE, Fabric(16), 4000, group=Group.consecutive(16, 4))).total
    assert four.transfer == pytest.approx(single.transfer)


def test_one_replica_costs_nothing() -> None:
    assert price(schedule(ALL_REDUCE, Fabric(1), 4000)).total == Cost()


def test_no_ladder_has_odd_ipus() -> None:
    with pytest.raises(ArgumentError, match="even number of IPUs"):
        price(schedule(ALL_REDUCE, Fabric(3), 4000))
