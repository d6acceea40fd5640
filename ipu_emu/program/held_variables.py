"""Variables that no instruction of a program changes, as in inference, and those that differ between replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import WeightUpdate, leaves, of_type
from ipu_emu.program.memory_plan import Allocation


def replica_variables(graph: Graph) -> list[str]:
    """Return the ids of the variables that an op of the forward pass changes, except those of groups of replicas.

    Weight updates use reduced gradients, so the weights are equal on all replicas. Variables that an op of the
    forward pass changes are not; if one value is requested, it is that of the first replica.
    """
    changed = {op.inputs[i] for op in graph.ops if op.phase is StepPhase.FORWARD for _, i in TABLE.in_place(op)}
    return sorted(id for id in changed if (t := graph.tensors[id]).role is Role.WEIGHT and t.group is None)


def held_variables(executable: Executable) -> Mapping[str, Allocation]:
    """Return where weights and constants are that stay as the host sets them, and views of these.

    A copy from Streaming Memory is read at the place of its variable. None if the program trains: copies of variables
    for its kernels would take memory that training needs.
    """
    program, plan = list(leaves(executable.program)), executable.plan
    if of_type(program, WeightUpdate):
        return {}
    ops = [op for leaf in program for op in leaf.ops if op.outputs]
    views = {op.outputs[0]: op.inputs[TABLE[op].view_of or 0] for op in ops if op.outputs[0] in plan.views}
    loaded = {op.outputs[0]: op.inputs[0] for op in ops if op.type == REMOTE_LOAD}

    def root(id: str) -> str:
        return root(views[id]) if id in views else id

    changed = {root(id) for leaf in program for id in leaf.writes if id not in views}
    for leaf in program:  # an op may change a variable through its view
        changed |= {root(op.inputs[index]) for op in leaf.ops for _, index in TABLE.in_place(op)}
    tensors = executable.graph.with_role(Role.WEIGHT, Role.CONSTANT)
    held = {t.id: plan.placements[t.id] for t in tensors if t.id in plan.placements and t.id not in changed}
    alike = [id for id, source in loaded.items() if source in held and _alike(plan.placements, id, source)]
    held |= {id: held[loaded[id]] for id in alike}
    return held | {id: _at(plan.placements, id, root(id), held[root(id)]) for id in views if root(id) in held}


def _alike(placements: Mapping[str, Allocation], copy: str, source: str) -> bool:
    return placements[copy].batch_innermost == placements[source].batch_innermost


def _at(placements: Mapping[str, Allocation], view: str, root: str, place: Allocation) -> Allocation:
    """Where the ``view`` of ``root`` is if ``root`` is at ``place``."""
    moved = place.offset - placements[root].offset
    return replace(placements[view], region=place.region, offset=placements[view].offset + moved)
