"""Replica variables: variables whose value depends on a replica's own data, such as running statistics.

Weight updates use reduced gradients, so the weights are equal on all replicas. Variables that an op of the forward
pass changes are not; if one value is requested, it is that of the first replica.
"""

from __future__ import annotations

from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.ops import TABLE

__all__ = ["replica_variables"]


def replica_variables(graph: Graph) -> list[str]:
    """Return the ids of the variables that an op of the forward pass changes, except those of groups of replicas."""
    changed = {op.inputs[i] for op in graph.ops if op.phase is StepPhase.FORWARD for _, i in TABLE.in_place(op)}
    return sorted(id for id in changed if (t := graph.tensors[id]).role is Role.WEIGHT and t.group is None)
