"""Program profile: modelled time and memory of a compiled program on IPUs, as plain data with units in the keys.

step           training or inference, modelled seconds and cycles, the machine
instructions   of each: how often it runs in a step, seconds of one call, those for exchange and sync, FLOPs, bytes
memory         of each IPU: bytes by use and by op, tensors that are always live, lifetimes of the others, live bytes
stashes        tensors that a pipeline keeps for several micro-batches; FIFOs are those from another IPU
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ipu_emu.ops import TABLE
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.pricing import Pricing
from ipu_emu.program.clock.timeline import MOST_SPANS
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    IpuCopy,
    Pipeline,
    WeightUpdate,
    counted_leaves,
    leaves,
    listing,
    of_type,
    walk,
)
from ipu_emu.program.leaf_label import LeafLabel
from ipu_emu.program.memory_layout import aligned
from ipu_emu.program.memory_plan import Lifetime, ipu_of, is_off_chip, is_shared, node_in
from ipu_emu.session.memory_liveness import IpuMemory, ipu_memories
from popdist_py.trace.records import VERSION

#: Characters of the name of a task that are kept.
_LONGEST_NAME = 120


def program_profile(step: ModelledStep, name: str) -> dict[str, Any]:
    """The profile of a program, called ``name``."""
    executable, machine = step.executable, step.machine
    kind = machine.generation
    micro_batches = executable.step.batches * executable.step.accumulation
    return {
        "version": VERSION,
        "name": name,
        "phase": "training" if of_type(leaves(executable.program), WeightUpdate) else "inference",
        "modelled_seconds": step.timeline.seconds,
        "modelled_cycles": step.cycles(),
        "modelled_seconds_by_category": {key: value for key, value in step.seconds().items() if key != "total"},
        "clock_hertz": kind.clock,
        "replicas": step.replicas,
        "ipus_per_replica": step.ipus_per_replica,
        "tiles_per_ipu": kind.tiles,
        "bytes_per_ipu": kind.sram,
        "micro_batches": micro_batches,
        "samples": next((input.shape[0] for input in executable.inputs if input.shape), 1) * micro_batches,
        "listing": listing(executable.program),
        "instructions": list(_instructions(step)),
        "memory": [_memory(executable, memory) for memory in ipu_memories(executable, kind.tiles)],
        "stashes": list(_stashes(executable)),
        "pipeline": _pipeline(step),
    }


def _pipeline(step: ModelledStep) -> dict[str, Any] | None:
    """The schedule of a step, with the part of the time in which the IPUs work; None without a pipeline."""
    if not of_type(walk(step.executable.program), Pipeline):
        return None
    timeline = step.timeline
    return {
        "seconds": timeline.seconds,
        "efficiency": sum(timeline.by_ipu().values()) / (timeline.seconds * step.ipus_per_replica or 1.0),
        "spans": [
            [span.ipu, span.start, span.seconds, span.name[:_LONGEST_NAME], span.category.value]
            for span in timeline.spans[:MOST_SPANS]
        ],
    }


def _instructions(step: ModelledStep) -> Iterator[dict[str, Any]]:
    executable, pricing = step.executable, Pricing(step.executable, step.machine)
    for leaf, times in counted_leaves(executable.program):
        label, price = LeafLabel.of(leaf), pricing.of(leaf)
        op = leaf.ops[0] if leaf.ops else None
        cost = None if op is None else TABLE[op].cost(node_in(executable.graph, op))
        yield {
            "name": label.name,
            "output": label.output,
            "instruction": type(leaf).__name__,
            "text": str(leaf),
            "category": price.category.value,
            "ipu": price.ipu,
            "times_per_step": times,
            "modelled_seconds": price.seconds,
            "modelled_exchange_seconds": price.exchange,
            "modelled_sync_seconds": price.sync,
            "modelled_cycles": round(price.seconds * step.machine.generation.clock),
            "flops": cost.flops if cost else 0,
            "bytes": cost.bytes if cost else 0,
        }


def _memory(executable: Executable, memory: IpuMemory) -> dict[str, Any]:
    plan = executable.plan
    always = [
        {"tensor": id, "bytes": placed.tensor.nbytes, "role": placed.tensor.role.value}
        for id, placed in plan.placements.items()
        if ipu_of(placed.region) == memory.ipu
        and not is_shared(placed.region)
        and not is_off_chip(placed.region)
        and id not in plan.views
    ]
    lives = [life for life in plan.lives if _is_on(life, memory.ipu)]
    return {
        "ipu": memory.ipu,
        "bytes": memory.total,
        "streaming_bytes": memory.streaming,
        "bytes_by_use": memory.parts,
        "by_op": _memory_by_op(executable, [str(entry["tensor"]) for entry in always], lives, memory.live),
        "live_bytes": list(memory.live),
        "always_live": sorted(always, key=lambda entry: -entry["bytes"]),
        "not_always_live": [
            {"tensor": life.name, "bytes": life.size, "first": life.first, "last": life.last, "offset": life.offset}
            for life in sorted(lives, key=lambda life: -life.size)
        ],
    }


def _is_on(life: Lifetime, ipu: int) -> bool:
    return ipu_of(life.region) == ipu and not is_off_chip(life.region) and not life.is_scratch


def _stashes(executable: Executable) -> Iterator[dict[str, Any]]:
    copied = {leaf.op.outputs[0] for leaf in of_type(leaves(executable.program), IpuCopy)}
    for id, placed in executable.plan.placements.items():
        if placed.places > 1 and id not in executable.plan.views and not is_off_chip(placed.region):
            yield {
                "tensor": id,
                "ipu": ipu_of(placed.region),
                "kind": "FIFO" if id in copied else "stash",
                "micro_batches": placed.places,
                "bytes": placed.places * aligned(placed.tensor.nbytes),
            }


#: The label of tensors that no instruction names.
_NONE = LeafLabel("(no instruction)", "")


def _memory_by_op(
    executable: Executable, always: Sequence[str], lives: Sequence[Lifetime], live: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows for one IPU, with the most bytes at its peak first.

    ``always`` are the ids of the tensors that are always live, ``lives`` the lifetimes of the others, ``live`` their
    bytes at each instruction. Each tensor counts for one instruction, so the rows add up to the memory of all.
    """
    placements = executable.plan.placements
    labels, users = [], dict[tuple[str, int], LeafLabel]()
    for leaf in leaves(executable.program):
        labels.append(LeafLabel.of(leaf))
        for id in leaf.tensors:
            if id in placements:
                users.setdefault((placements[id].region, placements[id].offset), labels[-1])
    always_bytes: dict[LeafLabel, int] = defaultdict(int)
    other_bytes: dict[LeafLabel, int] = defaultdict(int)
    at_peak: dict[LeafLabel, int] = defaultdict(int)
    peak = max(range(len(live)), key=lambda at: live[at], default=-1)
    for id in always:
        placed = placements[id]
        always_bytes[users.get((placed.region, placed.offset), _NONE)] += placed.tensor.nbytes
    for life in lives:
        label = labels[life.first] if 0 <= life.first < len(labels) else _NONE
        other_bytes[label] += life.size
        at_peak[label] += life.size if life.first <= peak <= life.last else 0
    rows = [
        {
            "name": label.name,
            "output": label.output,
            "always_live_bytes": always_bytes.get(label, 0),
            "not_always_live_bytes": other_bytes.get(label, 0),
            "bytes_at_peak": always_bytes.get(label, 0) + at_peak.get(label, 0),
        }
        for label in dict.fromkeys([*always_bytes, *other_bytes])
    ]
    return sorted(rows, key=lambda row: -row["bytes_at_peak"])
