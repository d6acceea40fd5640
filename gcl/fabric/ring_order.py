"""Ring order: the replica at each position of a ring; "clockwise" sends to the next position.

    ladder of 8, one IPU each       Interleaved 0 2 4 6 7 5 3 1     Serpent 0 1 3 2 4 5 7 6

    row 3    6 - 7                          6 - 7                        6 - 7      a loop-back
             |   |                          ^   v                        .   ^      cable also
    row 2    4 - 5                          4   5                        4 > 5      joins 6 and 0
             |   |                          ^   v                        ^   .
    row 1    2 - 3                          2   3                        2 < 3
             |   |                          ^   v                        .   ^
    row 0    0 - 1                          0 < 1                        0 > 1

Orders consist of indices in a group, which step programs map to replicas. These rings never leave an IPU-Link domain.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology


class Order(StrEnum):
    """The four orders in which a ring can visit n replicas."""

    INTERLEAVED = "interleaved"
    FLAT = "flat"
    SERPENT = "serpent"
    MIRRORED_SERPENT = "mirrored_serpent"


def _interleaved(n: int) -> list[int]:
    """Evens ascending, then odds descending."""
    return [*range(0, n, 2), *range(n - 1 - n % 2, 0, -2)]


def _serpent(n: int) -> list[int]:
    return [i ^ (i >> 1 & 1) for i in range(n)]


_ORDERS: dict[Order, Callable[[int], list[int]]] = {
    Order.INTERLEAVED: _interleaved,
    Order.FLAT: lambda n: list(range(n)),
    Order.SERPENT: _serpent,
    Order.MIRRORED_SERPENT: lambda n: [replica ^ 1 for replica in _serpent(n)],
}

#: Orders that need an even number of replicas, because they use every rung.
_IN_PAIRS = (Order.SERPENT, Order.MIRRORED_SERPENT)


def ring(order: Order, n: int) -> tuple[int, ...]:
    """The replica at each of ``n`` positions."""
    if n < 1:
        raise ArgumentError(f"a ring of {n} replicas is not possible; use at least 1")
    if n > 1 and n % 2 and order in _IN_PAIRS:
        raise ArgumentError(
            f"a {order} ring of {n} replicas is not possible: it visits the replicas of a ladder in pairs; "
            "use an even number of replicas, or a mesh"
        )
    return tuple(_ORDERS[order](n)) if n > 1 else (0,)


def inverse(positions: tuple[int, ...]) -> tuple[int, ...]:
    """The position of each replica: ``inverse(ring)[ring[p]] == p``."""
    inverted = [0] * len(positions)
    for position, replica in enumerate(positions):
        inverted[replica] = position
    return tuple(inverted)


def order_of(fabric: Fabric) -> Order:
    """The order of every ring within the IPU-Link domains of ``fabric``: the first row that applies.

    barley twist                       Serpent       (the quad method adds the mirrored one)
    1 IPU per replica                  Interleaved   every hop is one rail or one rung
    torus, several IPUs per replica    Flat          every hop joins neighbouring replicas, also last to first
    mesh, several IPUs per replica     Interleaved   a hop skips one replica, except the two hops at the ends
    """
    if fabric.configuration is LinkConfiguration.BARLEY_TWIST:
        return Order.SERPENT
    if fabric.ipus_per_replica == 1 or fabric.topology is Topology.MESH:
        return Order.INTERLEAVED
    return Order.FLAT


def quad_orders(fabric: Fabric) -> tuple[Order, Order]:
    """The two orders of the quad-directional method; ArgumentError on a fabric that does not support it."""
    if fabric.configuration is not LinkConfiguration.BARLEY_TWIST:
        raise ArgumentError(
            f"quad_directional_ring does not run on a {fabric.topology} in configuration {fabric.configuration}; "
            "it needs barley_twist"
        )
    return Order.SERPENT, Order.MIRRORED_SERPENT
