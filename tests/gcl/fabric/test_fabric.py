"""Ladders, their numbering, links and routes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.errors import ArgumentError
from gcl.fabric.fabric import LINK_BANDWIDTH, Fabric, Hop, LinkClass, LinkConfiguration, Topology

RUNG, CROSS, UP, DOWN, GATEWAY = LinkClass
LADDERS = st.builds(
    Fabric,
    replicas=st.integers(1, 32).map(lambda rows: 2 * rows),
    topology=st.sampled_from(list(Topology)),
)


def cables(fabric: Fabric) -> dict[int, set[int]]:
    """The links of a ladder, written out independently of the implementation."""
    n = fabric.ipus_per_domain
    pairs = [(i, i + 1) for i in range(0, n, 2)] + [(i, i + 2) for i in range(n - 2)]
    if fabric.topology is Topology.TORUS and n > 2:
        pairs += [(n - 2, 0), (n - 1, 1)]
    wired: dict[int, set[int]] = {i: set() for i in range(n)}
    for a, b in pairs:
        wired[a].add(b)
        wired[b].add(a)
    return wired


def distance(wired: dict[int, set[int]], source: int, target: int) -> int:
    """The number of links from ``source`` to ``target``, by breadth-first search."""
    seen, steps = {source}, 0
    while target not in seen:
        seen = seen.union(*(wired[i] for i in seen))
        steps += 1
    return steps


def passed(fabric: Fabric, source: int, target: int) -> list[int]:
    """The IPUs on the route: the owner of each hop, then the target."""
    return [hop.owner for hop in fabric.route(source, target)] + [target]


@pytest.mark.parametrize(
    ("link", "expected"), [(RUNG, 58.41e9), (CROSS, 29.21e9), (UP, 29.21e9), (DOWN, 29.21e9), (GATEWAY, 25e9)]
)
def test_bandwidths_are_those_of_the_reference(link: LinkClass, expected: float) -> None:
    assert LINK_BANDWIDTH[link] == pytest.approx(expected, rel=2e-4)


def test_numbering() -> None:
    pod = Fabric(128, domains=2)
    assert pod.coordinates(0) == (0, 0, 0)
    assert pod.coordinates(3) == (0, 1, 1)
    assert pod.coordinates(63) == (0, 31, 1)
    assert pod.coordinates(64) == (1, 0, 0)
    assert (pod.machine_of(63), pod.machine_of(64)) == (15, 16)
    assert pod.rows == 32
    four = Fabric(16, 4)
    assert list(four.ipus_of(3)) == [12, 13, 14, 15]
    assert four.replica_of(13) == 3


@settings(deadline=None)
@given(LADDERS, st.data())
def test_neighbours_are_one_cable_away(fabric: Fabric, data: st.DataObject) -> None:
    ipu = data.draw(st.integers(0, fabric.ipus - 1))
    assert fabric.neighbours(ipu) == cables(fabric)[ipu]


@settings(deadline=None)
@given(LADDERS, st.data())
def test_a_route_is_a_shortest_path_over_cables(fabric: Fabric, data: st.DataObject) -> None:
    source, target = (data.draw(st.integers(0, fabric.ipus - 1)) for _ in range(2))
    wired, way = cables(fabric), passed(fabric, source, target)
    assert all(b in wired[a] for a, b in pairwise(way))
    assert len(way) - 1 == distance(wired, source, target)
    assert way[0] == source


def test_routes_charge_the_classes_of_the_reference() -> None:
    mesh = Fabric(8)
    assert mesh.route(2, 3) == (Hop(2, RUNG),)
    assert mesh.route(2, 7) == (Hop(2, CROSS), Hop(3, UP), Hop(5, UP))
    assert mesh.route(6, 2) == (Hop(6, DOWN), Hop(4, DOWN))
    assert mesh.route(5, 5) == ()
    torus = Fabric(8, topology=Topology.TORUS)
    assert torus.route(6, 0) == (Hop(6, UP),)  # loop-back
    assert torus.route(0, 4) == (Hop(0, UP), Hop(2, UP))  # both ways are as long: not through the loop-back


def test_domains_are_joined_through_the_machines_gw_links() -> None:
    pods = Fabric(16, domains=2)
    assert pods.route(5, 13) == (Hop(1, GATEWAY),)
    assert pods.route(0, 11) == (Hop(0, CROSS), Hop(1, UP), Hop(0, GATEWAY))
    assert pods.neighbours(5) == {4, 3, 7, 13}
    assert Fabric(12, domains=3).neighbours(0) == {1, 2, 4, 8}  # first and last are joined


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_replica_sizes(size: int) -> None:
    assert Fabric(4, size).ipus == 4 * size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replicas": 4, "ipus_per_replica": 3}, "Odd sized replicas are unsupported: 3 IPUs per replica"),
        ({"replicas": 4, "ipus_per_replica": 6}, "6 IPUs per replica are not supported; use 1, 2, 4, 8 or 16"),
        ({"replicas": 4, "ipus_per_replica": 32}, "use 1, 2, 4, 8 or 16"),
        ({"replicas": 6, "domains": 4}, "6 is not divisible by 4"),
        ({"replicas": 0}, "0 replicas over 1 IPU-Link domains: both must be at least 1"),
        ({"replicas": "4"}, "replicas='4' is not valid; give a whole number"),
        ({"replicas": 4.0}, "replicas=4.0 is not valid"),
        ({"replicas": True}, "replicas=True is not valid"),
        ({"replicas": 4, "domains": None}, "domains=None is not valid"),
        ({"replicas": 4, "topology": "line"}, "topology='line' is not valid; use mesh, torus"),
        ({"replicas": 4, "configuration": 3}, "configuration=3 is not valid; use Default, BarleyTwist"),
        ({"replicas": 16, "ipus_per_replica": 16}, "a domain has at most 64, so use at least 4 domains"),
    ],
)
def test_invalid_sizes_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Fabric(**arguments)


def test_ladders_may_be_named() -> None:
    twist = Fabric(8, topology=Topology.TORUS, configuration=LinkConfiguration.BARLEY_TWIST)
    named = Fabric(8, topology="torus", configuration="BarleyTwist")
    assert named == twist
    assert named.topology is Topology.TORUS
    assert named.ladder == "barley_twist"


SUPPORTED = {
    (LinkConfiguration.DEFAULT, Topology.MESH): {1, 2, 4, 8, 16},
    (LinkConfiguration.DEFAULT, Topology.TORUS): {1, 2, 4, 8, 16},
    (LinkConfiguration.BARLEY_TWIST, Topology.TORUS): {1},
    (LinkConfiguration.SLIDING_WINDOW, Topology.MESH): {1, 2},
    (LinkConfiguration.SLIDING_WINDOW, Topology.TORUS): {1, 2, 4},
}


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("configuration", list(LinkConfiguration))
def test_supported_configurations(configuration: LinkConfiguration, topology: Topology, size: int) -> None:
    assert Fabric(1, size, 1, topology, configuration).replicas_per_domain == 1  # always works
    if size in SUPPORTED.get((configuration, topology), set()):
        assert Fabric(4, size, 1, topology, configuration).replicas == 4
    else:
        with pytest.raises(ArgumentError, match=r"^Unsupported GCL link configuration"):
            Fabric(4, size, 1, topology, configuration)


def test_a_ladder_has_pairs() -> None:
    with pytest.raises(ArgumentError, match=r"3 IPUs.*ladder"):
        Fabric(3).route(0, 2)
    assert Fabric(1).route(0, 0) == ()
