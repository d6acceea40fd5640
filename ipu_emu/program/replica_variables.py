"""Replica variables: the variables that each replica changes by its own data, such as running statistics.

Weight updates take reduced gradients, so their variables are equal on all replicas. What an op of the forward pass
changes is not; the value of such a variable is that of the first replica, wherever one value is asked for.
"""

from __future__ import annotations

from ipu_emu.graph import Graph, Phase, Role
from ipu_emu.ops import TABLE

__all__ = ["replica_variables"]


def replica_variables(graph: Graph) -> list[str]:
    """Return the ids of the variables that an op of the forward pass changes, those of groups of replicas aside."""
    changed = {op.inputs[i] for op in graph.ops if op.phase is Phase.FORWARD for i in TABLE[op].updates}
    return sorted(id for id in changed if (t := graph.tensors[id]).role is Role.WEIGHT and t.group is None)
