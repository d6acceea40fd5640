"""Section work: the ops that each section of a trace runs, in order, and the values that it passes to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ipu_emu.tensorflow.importer.op_order import in_order
from ipu_emu.tensorflow.importer.section_import import SectionWork
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, Section

_BRANCHES = ("If", "Case")
#: Markers of ops that run in any case.
_EFFECTS = ("outfeed", "print")
_ASSIGNS = ("Assign", "ResourceScatter", "ResourceApply")


def divided_work(trace: FunctionTrace, results: Sequence[Any]) -> list[SectionWork]:
    """Return the sections that have ops; ``results`` are the tensors and ops that a function returns."""
    everything = trace.graph.get_operations()
    index = {op.name: number for number, op in enumerate(everything)}
    parts = [SectionWork(section) for section in trace.all_sections()]

    def owner(op: Any) -> SectionWork:
        return next(part for part in parts if part.section.holds(index[op.name]))

    roots: dict[int, list[Any]] = {id(part): _own_roots(trace, part.section, everything) for part in parts}
    waited = [part.section.count[0] for part in parts if part.section.kind == "while"]
    conditions = [part.section.condition for part in parts if part.section.kind == "while"]
    initial = [carried.initial for part in parts for carried in part.section.carried]
    for result in [*results, *waited, *conditions, *initial]:
        maker = getattr(result, "op", None)
        if maker is not None and maker.type == "Placeholder" and maker.name not in trace.markers:
            continue  # an input of the function
        if hasattr(result, "op"):
            owner(result.op).exports[result.name] = result
        else:
            roots[id(owner(result))].append(result)
    for part in reversed(parts):
        starts = [*roots[id(part)], *(tensor.op for tensor in part.exports.values())]
        ops, outside, before = _closure(starts, trace, part.section, index)
        part.ops = in_order(ops, index)
        for tensor in outside:
            owner(tensor.op).exports[tensor.name] = tensor
        for op in before:
            roots[id(owner(op))].append(op)
    return [part for part in parts if part.ops]


def _own_roots(trace: FunctionTrace, section: Section, everything: Sequence[Any]) -> list[Any]:
    """The ops of a section that run in any case."""
    roots = [*section.roots, *(carried.end.op for carried in section.carried)]
    if section.condition is not None:
        roots.append(section.condition.op)
    in_branches = any(marker.kind in _EFFECTS for marker in trace.inner.values())
    for op in everything[section.start : section.end]:
        marker = trace.markers.get(op.name)
        if (in_branches and op.type in _BRANCHES) or (marker is not None and marker.kind in _EFFECTS):
            roots.append(op)
        if section.pipeline is not None and op.type.startswith(_ASSIGNS):
            roots.append(op)
    return roots


def _closure(
    starts: Iterable[Any], trace: FunctionTrace, section: Section, index: dict[str, int]
) -> tuple[list[Any], list[Any], list[Any]]:
    """The dependencies of ``starts``: ops of the section, tensors of ops before it, and ops before it."""
    inside: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    before: dict[str, Any] = {}
    waiting = list(starts)
    while waiting:
        op = waiting.pop()
        if op.name in inside:
            continue
        if not section.holds(index[op.name]):
            before[op.name] = op
            continue
        inside[op.name] = op
        for tensor in op.inputs:
            if section.holds(index[tensor.op.name]):
                waiting.append(tensor.op)
            elif tensor.op.type == "Placeholder" and tensor.op.name not in trace.markers:
                inside[tensor.op.name] = tensor.op  # an input of the function
            else:
                outside[tensor.name] = tensor
        waiting += op.control_inputs
    return list(inside.values()), list(outside.values()), list(before.values())
