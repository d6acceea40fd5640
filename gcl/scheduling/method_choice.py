"""Method choice: the method that GCL uses by default, given the size of the tensor and the fabric.

The first row that applies (GCL reference, section 7). Bytes are per IPU: those of the shard for an all-gather, those
of the whole input for a reduce-scatter, whose limits are twice as large.

    barley twist                        meet in the middle below 196,608 bytes (reduce-scatter: times R), else quad
    torus, several IPUs per replica     meet in the middle
    several IPUs per replica, or R <= 2 clockwise
    R > 16                              meet in the middle
    R > 8, R > 4, any R                 meet in the middle below the limit of the table, else bidirectional
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gcl.core.request import Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.methods.method import Method

#: For rings longer than the key: an all-gather uses meet_in_middle_ring below this many bytes of shard per IPU.
_MEET_BELOW: dict[int, float] = {0: 622_592, 4: 2_490_368, 8: 19_922_944, 16: math.inf}

#: Bytes of shard below which a barley twist uses meet_in_middle_ring instead of quad_directional_ring.
_TWIST_BELOW = 196_608


@dataclass(frozen=True)
class Choice:
    """A method, and the reason for it."""

    method: Method
    why: str


def choose(collective: Collective, nbytes: int, fabric: Fabric, length: int, *, within: bool = True) -> Choice:
    """The method for a reduce-scatter of ``nbytes`` of input, or an all-gather of ``nbytes`` of shard, per replica.

    ``length``: replicas in the ring. ``within``: the ring stays within an IPU-Link domain; rings between domains
    have no barley twist.
    """
    if collective not in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        raise ArgumentError(f"{collective} has no method of its own; reduce_scatter and all_gather have one")
    scatter = collective is Collective.REDUCE_SCATTER
    if within and fabric.configuration is LinkConfiguration.BARLEY_TWIST:
        twist = _TWIST_BELOW * (length if scatter else 1)
        return _by_size(nbytes, twist, Method.QUAD_DIRECTIONAL_RING, "on a barley twist")
    if fabric.ipus_per_replica > 1 and fabric.topology is Topology.TORUS:
        return Choice(Method.MEET_IN_MIDDLE_RING, "a torus, several IPUs per replica")
    if fabric.ipus_per_replica > 1:
        return Choice(Method.CLOCKWISE_RING, "a mesh, several IPUs per replica")
    if length <= 2:
        return Choice(Method.CLOCKWISE_RING, f"a ring of {length}")
    limit = max(limit for above, limit in _MEET_BELOW.items() if length > above) * (2 if scatter else 1)
    if limit == math.inf:
        return Choice(Method.MEET_IN_MIDDLE_RING, f"a ring of {length}, longer than 16")
    return _by_size(nbytes, limit, Method.BIDIRECTIONAL_RING_PAIR, f"in a ring of {length}")


def _by_size(nbytes: int, limit: float, large: Method, where: str) -> Choice:
    """Meet in the middle below ``limit`` bytes, else ``large``."""
    if nbytes < limit:
        return Choice(Method.MEET_IN_MIDDLE_RING, f"{nbytes:,} bytes, below {limit:,} {where}")
    return Choice(large, f"{nbytes:,} bytes, at least {limit:,} {where}")
