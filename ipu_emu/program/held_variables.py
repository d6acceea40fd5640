"""Variables that no instruction of a program changes, as in inference, and those that differ between replicas."""

from __future__ import annotations

from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import WeightUpdate, leaves, of_type


def replica_variables(graph: Graph) -> list[str]:
    """Return the ids of the variables that an op of the forward pass changes, except those of groups of replicas.

    Weight updates use reduced gradients, so the weights are equal on all replicas. Variables that an op of the
    forward pass changes are not; if one value is requested, it is that of the first replica.
    """
    changed = {op.inputs[i] for op in graph.ops if op.phase is StepPhase.FORWARD for _, i in TABLE.in_place(op)}
    return sorted(id for id in changed if (t := graph.tensors[id]).role is Role.WEIGHT and t.group is None)


def held_variables(executable: Executable) -> list[str]:
    """Return the ids of weights and constants that stay as the host sets them, and of views of these.

    None if the program trains: copies of them for its kernels would take memory that training needs.
    """
    program, plan = list(leaves(executable.program)), executable.plan
    if of_type(program, WeightUpdate):
        return []
    viewing = (op for leaf in program for op in leaf.ops if op.outputs and op.outputs[0] in plan.views)
    views = {op.outputs[0]: op.inputs[TABLE[op].view_of or 0] for op in viewing}

    def root(id: str) -> str:
        return root(views[id]) if id in views else id

    changed = {root(id) for leaf in program for id in leaf.writes if id not in views}
    for leaf in program:  # an op may change a variable through its view
        changed |= {root(op.inputs[index]) for op in leaf.ops for _, index in TABLE.in_place(op)}
    tensors = executable.graph.with_role(Role.WEIGHT, Role.CONSTANT)
    held = {t.id for t in tensors if t.id in plan.placements and t.id not in changed and not t.off_chip}
    return [*held, *(id for id in views if root(id) in held)]
