"""Closed price: the same cost as the schedule that GCL would run."""

from __future__ import annotations

from itertools import product

import pytest

from gcl import ArgumentError, Collective, Cost, Fabric, closed_price, price, schedule

COLLECTIVES = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
#: Replicas in all and in how many domains: rings of 1, 2, odd, even and long, one and several domains.
SIZES = ((1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (16, 1), (64, 1), (2, 2), (4, 2), (16, 4), (32, 16), (128, 2))
CLOCK = 1.33e9


def both(collective: Collective, fabric: Fabric, elements: int) -> tuple[Cost, Cost]:
    """The cost by the schedule, and by formula."""
    plan = schedule(collective, fabric, elements, itemsize=2)
    return price(plan, CLOCK).total, closed_price(collective, fabric, elements, itemsize=2, clock=CLOCK).total


def check(collective: Collective, fabric: Fabric, elements: int) -> None:
    wanted, got = both(collective, fabric, elements)
    assert got.exchanges == wanted.exchanges
    for part in ("transfer", "hops", "sync"):
        assert getattr(got, part) == pytest.approx(getattr(wanted, part), rel=1e-9)
    assert got.seconds == pytest.approx(wanted.seconds, rel=1e-3)


def is_ladder(replicas: int, domains: int, ipus: int) -> bool:
    per_domain = replicas // domains * ipus
    return per_domain == 1 or (per_domain <= 64 and per_domain % 2 == 0)


@pytest.mark.parametrize(
    ("replicas", "domains", "ipus"),
    [(*size, ipus) for size, ipus in product(SIZES, (1, 2, 4, 8)) if is_ladder(*size, ipus)],
)
def test_as_the_schedule(replicas: int, domains: int, ipus: int) -> None:
    for collective, elements in product(COLLECTIVES, (3, 700_003, 25_557_032)):
        check(collective, Fabric(replicas, ipus, domains), elements)


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric(16, 4, topology="torus"),
        Fabric(8, 2, 2, topology="torus"),
        Fabric(16, topology="torus", configuration="BarleyTwist"),
        Fabric(32, 1, 2, topology="torus", configuration="BarleyTwist"),
    ],
    ids=str,
)
def test_other_topologies(fabric: Fabric) -> None:
    for collective in COLLECTIVES:
        check(collective, fabric, 25_557_032)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_elements_of_each_ipu(collective: Collective) -> None:
    """IPUs 0 and 2 share a rail, IPUs 1 and 3 the other, so the fuller rail counts."""

    def transfer(*elements: int) -> float:
        return closed_price(collective, Fabric(8, 4), elements, itemsize=2, clock=CLOCK).inside.transfer

    even = closed_price(collective, Fabric(8, 4), 4_000_000, itemsize=2, clock=CLOCK).inside.transfer
    assert transfer(*[1_000_000] * 4) == even
    assert transfer(1_000_000, 0, 1_000_000, 0) == even
    assert transfer(500_000, 1_500_000, 0, 500_000) == even
    assert transfer(0, 0, 0, 1_000_000) == pytest.approx(even / 2)


def test_elements_must_be_given_for_every_ipu() -> None:
    with pytest.raises(ArgumentError, match=r"3 IPUs.*4"):
        closed_price(Collective.ALL_REDUCE, Fabric(8, 4), (1, 2, 3))


def test_a_thousand_replicas() -> None:
    check(Collective.ALL_REDUCE, Fabric(1024, 1, 16), 25_557_032)


def test_the_largest_cluster() -> None:
    """51 MB over 65,536 IPUs in 1,024 domains: no sync hops from one end of the cluster to the other."""
    cost = closed_price(Collective.ALL_REDUCE, Fabric(65_536, 1, 1024), 25_557_032, itemsize=2)
    assert 1.7e-3 < cost.inside.transfer < 1.8e-3
    assert cost.across.transfer == pytest.approx(2 * 25_557_032 * 2 / 64 / 6.25e9, rel=2e-3)
    assert cost.total.seconds < 5e-3


def test_collectives_without_a_formula() -> None:
    with pytest.raises(ArgumentError, match="all_to_all has no closed price"):
        closed_price(Collective.ALL_TO_ALL, Fabric(4), 4)
