"""choice: the method that GCL takes by itself, from the size of the tensor and the fabric.

The first row that fits (GCL reference, section 7); bytes are per IPU: those of the shard for an all-gather, those of
the whole input for a reduce-scatter, which has twice the limits.

    barley twist                        meet in the middle below 196,608 bytes (reduce-scatter: times R), else quad
    torus, several IPUs per replica     meet in the middle
    several IPUs per replica, or R <= 2 clockwise
    R > 16                              meet in the middle
    R > 8, R > 4, any R                 meet in the middle below the limit of the table, else bidirectional
"""

from __future__ import annotations

import math

from gcl.errors import ArgumentError
from gcl.fabric import Fabric, LinkConfiguration, Topology
from gcl.methods.method import Method
from gcl.program import Collective

__all__ = ["choose"]

#: Ring longer than -> an all-gather meets in the middle below this many bytes of shard per IPU.
_MEET_BELOW: dict[int, float] = {0: 622_592, 4: 2_490_368, 8: 19_922_944, 16: math.inf}

#: Shard bytes below which a barley twist does not use all four ways.
_TWIST_BELOW = 196_608


def choose(collective: Collective, nbytes: int, fabric: Fabric, length: int, *, within: bool = True) -> Method:
    """The method for a reduce-scatter of ``nbytes`` of input, or an all-gather of ``nbytes`` of shard, per replica.

    ``length``: replicas in the ring; ``within``: it stays in an IPU-Link domain (rings between domains have no
    barley twist).
    """
    if collective not in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        raise ArgumentError(f"a method for {collective} was asked for; reduce_scatter and all_gather have one")
    scatter = collective is Collective.REDUCE_SCATTER
    if within and fabric.configuration is LinkConfiguration.BARLEY_TWIST:
        limit = _TWIST_BELOW * (length if scatter else 1)
        return Method.MEET_IN_MIDDLE_RING if nbytes < limit else Method.QUAD_DIRECTIONAL_RING
    if fabric.ipus_per_replica > 1 and fabric.topology is Topology.TORUS:
        return Method.MEET_IN_MIDDLE_RING
    if fabric.ipus_per_replica > 1 or length <= 2:
        return Method.CLOCKWISE_RING
    per_ipu = nbytes / fabric.ipus_per_replica
    below = max(limit for above, limit in _MEET_BELOW.items() if length > above) * (2 if scatter else 1)
    return Method.MEET_IN_MIDDLE_RING if per_ipu < below else Method.BIDIRECTIONAL_RING_PAIR
