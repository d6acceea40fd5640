"""Ring orders, and that neighbours on a ring are neighbours on the fabric."""

from __future__ import annotations

import pytest

from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.fabric.ring_order import Order, inverse, order_of, quad_orders, ring

TWIST = LinkConfiguration.BARLEY_TWIST
MESH, TORUS = Topology


def twist(replicas: int) -> Fabric:
    return Fabric(replicas, topology=TORUS, configuration=TWIST)


def steps(order: tuple[int, ...]) -> list[tuple[int, int]]:
    """(position p, position p + 1) as replicas."""
    return list(zip(order, order[1:] + order[:1], strict=True))


def distance(fabric: Fabric, a: int, b: int) -> int:
    """Replicas from ``a`` to ``b`` along the ladder; on a torus the last is next to the first."""
    apart = abs(a - b)
    return min(apart, fabric.replicas - apart) if fabric.topology is TORUS else apart


@pytest.mark.parametrize(
    ("order", "eight", "four"),
    [
        (Order.INTERLEAVED, (0, 2, 4, 6, 7, 5, 3, 1), (0, 2, 3, 1)),
        (Order.FLAT, (0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3)),
        (Order.SERPENT, (0, 1, 3, 2, 4, 5, 7, 6), (0, 1, 3, 2)),
        (Order.MIRRORED_SERPENT, (1, 0, 2, 3, 5, 4, 6, 7), (1, 0, 2, 3)),
    ],
)
def test_orders_of_the_reference(order: Order, eight: tuple[int, ...], four: tuple[int, ...]) -> None:
    assert ring(order, 8) == eight
    assert ring(order, 4) == four


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 16, 32, 64])
def test_every_order_visits_every_replica_once_and_can_be_inverted(order: Order, n: int) -> None:
    positions = ring(order, n)
    assert sorted(positions) == list(range(n))
    places = inverse(positions)
    assert [places[replica] for replica in positions] == list(range(n))
    assert inverse(places) == positions


@pytest.mark.parametrize("n", range(1, 65))
def test_inverse_of_interleaved_and_serpent(n: int) -> None:
    expected = tuple(r // 2 if r % 2 == 0 else n - 1 - (r - 1) // 2 for r in range(n))
    assert inverse(ring(Order.INTERLEAVED, n)) == expected
    if n % 2 == 0:
        assert inverse(ring(Order.SERPENT, n)) == ring(Order.SERPENT, n)


@pytest.mark.parametrize(
    ("fabric", "order"),
    [
        (twist(8), Order.SERPENT),
        (Fabric(8), Order.INTERLEAVED),
        (Fabric(8, topology=TORUS), Order.INTERLEAVED),  # the loop-back cable is not used
        (Fabric(8, 2, topology=TORUS), Order.FLAT),
        (Fabric(8, 4, topology=TORUS), Order.FLAT),
        (Fabric(8, 2), Order.INTERLEAVED),
    ],
)
def test_choice_of_the_order(fabric: Fabric, order: Order) -> None:
    assert order_of(fabric) is order


@pytest.mark.parametrize("replicas", [2, 4, 6, 8, 16, 32, 64])
@pytest.mark.parametrize("topology", list(Topology))
def test_with_one_ipu_every_hop_is_one_rail_or_rung(replicas: int, topology: Topology) -> None:
    fabric = Fabric(replicas, topology=topology)
    for a, b in steps(ring(order_of(fabric), replicas)):
        assert b in fabric.neighbours(a)
        assert len(fabric.route(a, b)) == 1
        rows = {fabric.coordinates(a)[1], fabric.coordinates(b)[1]}
        assert max(rows) - min(rows) <= 1  # never through a loop-back


@pytest.mark.parametrize("replicas", [8, 16, 32, 64])
def test_barley_twist_every_hop_is_one_cable_and_the_four_rings_share_none(replicas: int) -> None:
    fabric, used = twist(replicas), []
    for order in quad_orders(fabric):
        for a, b in steps(ring(order, replicas)):
            assert len(fabric.route(a, b)) == 1
            used += [(a, b), (b, a)]
    rails = [(a, b) for a, b in used if a // 2 != b // 2]
    assert len(rails) == len(set(rails)) == 2 * replicas  # every rail both ways, once
    rungs = [(a, b) for a, b in used if a // 2 == b // 2]
    assert all(rungs.count(rung) == 2 for rung in rungs)  # twice the links


def test_on_one_machine_a_serpents_last_hop_has_no_own_loop_back() -> None:
    fabric = twist(4)  # two rows: the loop-back lies beside the rail, and routes prefer the rail
    pairs = [pair for order in quad_orders(fabric) for pair in steps(ring(order, 4))]
    rails = [fabric.route(*way) for pair in pairs for way in (pair, pair[::-1]) if pair[0] // 2 != pair[1] // 2]
    assert all(len(route) == 1 for route in rails)
    assert len(set(rails)) == len(rails) / 2


@pytest.mark.parametrize("ipus", [2, 4, 8])
@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_several_ipus_on_a_torus_neighbouring_replicas_also_last_to_first(ipus: int, replicas: int) -> None:
    fabric = Fabric(replicas, ipus, topology=TORUS)
    for a, b in steps(ring(order_of(fabric), replicas)):
        assert distance(fabric, a, b) == 1
        hops = [len(fabric.route(*pair)) for pair in zip(fabric.ipus_of(a), fabric.ipus_of(b), strict=True)]
        assert max(hops) == ipus // 2  # as far as a replica is tall


@pytest.mark.parametrize("ipus", [2, 4, 8])
@pytest.mark.parametrize("replicas", [4, 8])
def test_several_ipus_on_a_mesh_pass_over_one_replica_but_at_the_ends(ipus: int, replicas: int) -> None:
    fabric = Fabric(replicas, ipus)
    distances = {(a, b): distance(fabric, a, b) for a, b in steps(ring(order_of(fabric), replicas))}
    ends = {(replicas - 2, replicas - 1), (1, 0)}
    assert {pair for pair, distance in distances.items() if distance == 1} == ends
    assert set(distances.values()) == {1, 2}


def test_invalid_rings_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"even number.*mesh"):
        ring(Order.SERPENT, 5)
    with pytest.raises(ArgumentError, match="at least 1"):
        ring(Order.FLAT, 0)
    with pytest.raises(ArgumentError, match=r"quad_directional_ring.*mesh"):
        quad_orders(Fabric(8))
