"""Stashes and host copies: ops that keep activations between pipeline stages, or load and store step data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ipu_emu.compiler.rewriting.reserved_prefixes import RESTORED, STASHED
from ipu_emu.graph import Role, StepPhase
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp

_MOVING = (Role.INPUT, Role.COMPUTED)


def add_stashes(graph: IrGraph, *, explicit: bool) -> None:
    """Stash what a later stage of the same IPU reads: by Stash and Restore, or by dynamic ops if ``explicit``."""
    home: dict[str, tuple[int, int]] = {}
    for op in graph.ops:
        for id in op.outputs:
            home[id] = (op.stage, op.ipu)
        for id in op.inputs:
            if id in graph.tensors and graph.tensors[id].role is Role.INPUT:
                home.setdefault(id, (op.stage, op.ipu))
    late = [op for op in graph.ops if op.phase is not StepPhase.UPDATE]
    wanted = list(dict.fromkeys((id, op.stage) for op in late for id in op.inputs if _is_kept(graph, op, id, home)))
    stashed: dict[str, str] = {}
    for id, stage in wanted:
        first = next(i for i, op in enumerate(graph.ops) if op.stage == stage and id in op.inputs)
        at = graph.ops[first]
        if id not in stashed:
            stashed[id] = _stash(graph, id, at, home[id][0], explicit)
            first = next(i for i, op in enumerate(graph.ops) if op is at)
        restored = graph.new(RESTORED + id, graph.tensors[id])
        kind = "DynamicSlice" if explicit else "RestoreInplace" if _once(wanted, id) else "Restore"
        for op in graph.ops:
            if op.stage == stage and op.phase is not StepPhase.UPDATE:
                op.inputs = [restored if input == id else input for input in op.inputs]
        inputs = [stashed[id]] if explicit else [id, stashed[id]]
        graph.ops.insert(first, replace(at.like(kind, inputs, [restored]), name="", recompute="Checkpoint"))


def _is_kept(graph: IrGraph, op: IrOp, id: str, home: dict[str, tuple[int, int]]) -> bool:
    if not id or graph.tensors[id].role not in _MOVING or id not in home or op.type == "IpuCopy":
        return False
    stage, ipu = home[id]
    return op.stage > stage and op.ipu == ipu


def _once(wanted: Iterable[tuple[str, int]], id: str) -> bool:
    return sum(other == id for other, _ in wanted) == 1


def _stash(graph: IrGraph, id: str, at: IrOp, stage: int, explicit: bool) -> str:
    """Add the op that stashes ``id`` at the end of the stage that makes it."""
    stash = graph.new(STASHED + id, graph.tensors[id])
    last = max(i for i, op in enumerate(graph.ops) if op.stage == stage and op.phase is StepPhase.FORWARD)
    kind = "DynamicUpdate" if explicit else "Stash"
    graph.ops.insert(last + 1, replace(at.like(kind, [id], [stash]), stage=stage, phase=StepPhase.FORWARD, name=""))
    return stash


def add_host_copies(graph: IrGraph) -> None:
    """Add Init and HostLoad for each input, and HostStore for each anchor."""
    readers = graph.readers()
    inputs = [t for t in list(graph.tensors.values()) if t.role is Role.INPUT and t.id in readers]
    loads: list[IrOp] = []
    for tensor in inputs:
        at = graph.ops[readers[tensor.id][0]]
        empty = graph.new(f"{tensor.id}/init", tensor)
        loads.append(replace(at.like("Init", [], [empty]), name="", phase=StepPhase.FORWARD, recompute="Checkpoint"))
        load = at.like("HostLoadInplace", [empty], [tensor.id])
        loads.append(replace(load, name="", phase=StepPhase.FORWARD, recompute="Checkpoint"))
        graph.tensors[tensor.id] = replace(tensor, role=Role.COMPUTED)
    graph.ops[:0] = loads
    for id in sorted(graph.anchors):
        at = next((op for op in graph.ops if id in op.outputs), graph.ops[-1])
        graph.ops.append(replace(at.like("HostStore", [id], []), name="", recompute="Checkpoint"))
