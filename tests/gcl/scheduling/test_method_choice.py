"""The automatic choice of a method, at its thresholds."""

from __future__ import annotations

import pytest

from gcl.core.request import Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.method_choice import choose as choice
from gcl.scheduling.methods import Method

GATHER, SCATTER = Collective.ALL_GATHER, Collective.REDUCE_SCATTER
MEET, PAIR = Method.MEET_IN_MIDDLE_RING, Method.BIDIRECTIONAL_RING_PAIR
QUAD, CLOCKWISE = Method.QUAD_DIRECTIONAL_RING, Method.CLOCKWISE_RING


def choose(collective: Collective, nbytes: int, fabric: Fabric, length: int, *, within: bool = True) -> Method:
    return choice(collective, nbytes, fabric, length, within=within).method


def twist(replicas: int) -> Fabric:
    return Fabric(replicas, topology=Topology.TORUS, configuration=LinkConfiguration.BARLEY_TWIST)


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize(
    ("collective", "replicas", "limit"),
    [
        (GATHER, 3, 622_592),
        (GATHER, 4, 622_592),
        (GATHER, 5, 2_490_368),
        (GATHER, 8, 2_490_368),
        (GATHER, 9, 19_922_944),
        (GATHER, 16, 19_922_944),
        (SCATTER, 4, 1_245_184),
        (SCATTER, 8, 4_980_736),
        (SCATTER, 16, 39_845_888),
    ],
)
def test_one_ipu_per_replica(collective: Collective, replicas: int, limit: int, topology: Topology) -> None:
    fabric = Fabric(replicas, topology=topology)
    assert choose(collective, limit - 1, fabric, replicas) is MEET
    assert choose(collective, limit, fabric, replicas) is PAIR


@pytest.mark.parametrize("collective", [GATHER, SCATTER])
def test_long_rings_always_meet_in_the_middle(collective: Collective) -> None:
    assert choose(collective, 10**12, Fabric(64), 64) is MEET
    assert choose(collective, 10**12, Fabric(18), 18) is MEET


@pytest.mark.parametrize("collective", [GATHER, SCATTER])
@pytest.mark.parametrize("nbytes", [0, 10**9])
def test_rows_that_do_not_look_at_the_size(collective: Collective, nbytes: int) -> None:
    assert choose(collective, nbytes, Fabric(2), 2) is CLOCKWISE
    assert choose(collective, nbytes, Fabric(1), 1) is CLOCKWISE
    assert choose(collective, nbytes, Fabric(8, 2), 8) is CLOCKWISE
    assert choose(collective, nbytes, Fabric(8, 2, topology=Topology.TORUS), 8) is MEET
    assert choose(collective, nbytes, Fabric(2, 2, topology=Topology.TORUS), 2) is MEET


@pytest.mark.parametrize(("collective", "limit"), [(GATHER, 196_608), (SCATTER, 196_608 * 16)])
def test_barley_twist(collective: Collective, limit: int) -> None:
    assert choose(collective, limit - 1, twist(16), 16) is MEET
    assert choose(collective, limit, twist(16), 16) is QUAD
    assert choose(collective, 10**9, twist(16), 2, within=False) is CLOCKWISE


def test_example_of_the_reference() -> None:
    """51.1 MB of FP16 gradients on a mesh with 1 IPU per replica."""
    assert choose(SCATTER, 51_100_000, Fabric(16), 16) is PAIR
    assert choose(GATHER, 51_100_000 // 16, Fabric(16), 16) is MEET
    assert choose(SCATTER, 51_100_000, Fabric(64), 64) is MEET
    assert choose(GATHER, 51_100_000 // 64, Fabric(64), 64) is MEET


def test_only_two_collectives_have_methods() -> None:
    with pytest.raises(ArgumentError, match="reduce_scatter and all_gather have one"):
        choose(Collective.ALL_TO_ALL, 1, Fabric(4), 4)


@pytest.mark.parametrize(
    ("replicas", "nbytes", "why"),
    [
        (2, 5, "a ring of 2"),
        (4, 5, "5 bytes, below 1,245,184 in a ring of 4"),
        (8, 5_000_000, "5,000,000 bytes, at least 4,980,736 in a ring of 8"),
        (32, 10**9, "a ring of 32, longer than 16"),
    ],
)
def test_each_choice_has_a_reason(replicas: int, nbytes: int, why: str) -> None:
    assert choice(SCATTER, nbytes, Fabric(replicas), replicas).why == why
