"""Out of memory: whether a program fits the memory of its IPUs, and remedies if it does not.

The limits are the tile memory of an IPU and its share of Streaming Memory; a Cpu or Sim device has none. The price of
a remedy is roughly how much slower a step becomes. Remedies that suffice alone come first, the cheapest at the top. A
face provides the wording of the advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from types import MappingProxyType

from gcl.drawing.units import memory
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.tensor_locations import LocationRule, TensorLocation
from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.pipeline import CompileState, run_passes
from ipu_emu.errors import OutOfMemoryError
from ipu_emu.graph import Role, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.hardware import GENERATIONS, Device, DeviceKind
from ipu_emu.program.executable import Executable
from ipu_emu.program.footprint import Footprint, footprints
from ipu_emu.program.memory_plan import ipu_of, is_off_chip

__all__ = [
    "ADVICE",
    "Remedy",
    "RemedyKind",
    "cheapest",
    "check_memory",
    "memory_of",
    "remedies",
    "streaming_memory_of",
]

_LIMITED = (DeviceKind.IPU, DeviceKind.OFFLINE, DeviceKind.IPU_MODEL)
_MOST_REMEDIES = 3
#: Remedies that save a smaller fraction than this of the missing bytes are not advised.
_LEAST = 0.01


class RemedyKind(Enum):
    """The kinds of remedies for a program that needs too much memory."""

    STATES_OFF_CHIP = "optimiser states in Streaming Memory"
    STATES_SHARDED = "optimiser states divided between replicas"
    MICRO_BATCH = "a smaller micro-batch"
    MORE_IPUS = "more IPUs for each replica"
    FLOAT16 = "FLOAT16 instead of FLOAT"
    RECOMPUTE = "activations recomputed in the backward pass"
    ACTIVATIONS_OFF_CHIP = "activations in Streaming Memory"


Advice = Mapping[RemedyKind, str]

#: The advice by kind, for users of no particular face.
ADVICE: Advice = MappingProxyType(
    {
        RemedyKind.STATES_OFF_CHIP: "put the optimiser state off chip",
        RemedyKind.STATES_SHARDED: "share the optimiser state between the {replicas} replicas",
        RemedyKind.MICRO_BATCH: "halve the micro-batch and double the accumulation factor",
        RemedyKind.MORE_IPUS: "spread each replica over {ipus} IPUs",
        RemedyKind.FLOAT16: "use FLOAT16 instead of FLOAT in the model",
        RemedyKind.RECOMPUTE: "recompute activations in the backward pass",
        RemedyKind.ACTIVATIONS_OFF_CHIP: "keep activations off chip",
    }
)


def _recomputed(options: CompileOptions) -> CompileOptions:
    return replace(options, recomputation=Recomputation.STANDARD)


def _with_activations_off_chip(options: CompileOptions) -> CompileOptions:
    rule = LocationRule(TensorLocation(off_chip=True), smallest_off_chip=2)
    return replace(options, locations=replace(options.locations, activations=rule))


#: Remedies whose savings are found by compiling again: kind, changed options, price.
_COMPILED = (
    (RemedyKind.RECOMPUTE, _recomputed, 0.3),
    (RemedyKind.ACTIVATIONS_OFF_CHIP, _with_activations_off_chip, 0.5),
)


@dataclass(frozen=True)
class Remedy:
    """``saved`` counts bytes on the IPU that needs the most; ``price`` is a fraction of the time of a step."""

    what: str
    saved: int
    price: float
    suffices: bool = False

    def __str__(self) -> str:
        return f"{self.what} (saves about {memory(self.saved)}{', which suffices' if self.suffices else ''})"


def memory_of(device: Device) -> int | None:
    """Return the tile memory of an IPU of ``device`` in bytes; None if there is no limit."""
    generation = GENERATIONS.get(device.version)
    if device.kind not in _LIMITED or generation is None:
        return None
    return device.tiles_per_ipu * generation.tile_memory


def streaming_memory_of(device: Device) -> int | None:
    """Return the Streaming Memory of all IPUs of ``device`` in bytes; None if there is no limit."""
    generation = GENERATIONS.get(device.version)
    if device.kind not in _LIMITED or generation is None:
        return None
    return device.num_ipus * generation.streaming_memory


def check_memory(
    executable: Executable,
    device: Device,
    *,
    step: CompileState,
    beside: Executable | None = None,
    advice: Advice = ADVICE,
) -> None:
    """Raise OutOfMemoryError if an IPU needs more memory than it has.

    ``step`` is the state from which the executable was compiled; ``beside`` is a second program of the same
    variables.
    """
    _check_streaming_memory(executable, device)
    limit = memory_of(device)
    needs = footprints(executable, device.tiles_per_ipu)
    if beside is not None:
        others = footprints(beside, device.tiles_per_ipu)
        needs = [one.beside(other) for one, other in zip_longest(needs, others, fillvalue=Footprint())]
    worst = max(range(len(needs)), key=lambda ipu: needs[ipu].total)
    if limit is None or needs[worst].total <= limit:
        return
    missing = needs[worst].total - limit
    found = remedies(executable, device, worst, step=step, advice=advice)
    lines = "\n".join(f"  {remedy}" for remedy in cheapest(found, missing))
    raise OutOfMemoryError(
        f"Out of memory: IPU {worst} needs {memory(needs[worst].total)} and has {memory(limit)}, which is "
        f"{memory(missing)} too little. Memory by IPU:\n{_table(needs, limit)}\nRemedies:\n{lines}"
    )


def _check_streaming_memory(executable: Executable, device: Device) -> None:
    plan, generation = executable.plan, GENERATIONS.get(device.version)
    needs = [plan.streaming_bytes_of(ipu) for ipu in range(plan.ipus)]
    if device.kind not in _LIMITED or generation is None or max(needs) <= generation.streaming_memory:
        return
    if not generation.streaming_memory:
        raise OutOfMemoryError(
            "Offloading has been enabled, however the current configuration of the IPU devices does not support "
            f"remote memory: {generation.name} has no Streaming Memory. Keep all on chip, or use another system"
        )
    raise OutOfMemoryError(
        f"Out of memory: IPU {needs.index(max(needs))} needs {memory(max(needs))} of Streaming Memory and has "
        f"{memory(generation.streaming_memory)}; keep more on chip, buffer fewer micro-batches of inputs "
        "(defaultBufferingDepth), or spread the model over more IPUs"
    )


def remedies(
    executable: Executable, device: Device, ipu: int, *, step: CompileState, advice: Advice = ADVICE
) -> Iterator[Remedy]:
    """Yield the remedies that save memory on ``ipu``; see ``check_memory`` for ``step``."""
    need, replicas = footprints(executable, device.tiles_per_ipu)[ipu], step.options.replicas
    remote = GENERATIONS[device.version].streaming_memory > 0
    states = [tensor for tensor in _on(executable, ipu) if tensor.role is Role.STATE]
    whole = sum(tensor.nbytes for tensor in states if tensor.shards is None)
    if remote:
        yield Remedy(advice[RemedyKind.STATES_OFF_CHIP], sum(tensor.nbytes for tensor in states), 0.1)
    sharded = advice[RemedyKind.STATES_SHARDED].format(replicas=replicas)
    yield Remedy(sharded, whole - whole // replicas, 0.02)
    moving = need.transient + need.stashes + need.fifos
    yield Remedy(advice[RemedyKind.MICRO_BATCH], moving // 2, 0.15)
    yield Remedy(advice[RemedyKind.MORE_IPUS].format(ipus=2 * executable.plan.ipus), need.data // 2, 1.0)
    others = [tensor for tensor in _on(executable, ipu) if tensor.role is not Role.STATE]
    halves = sum(tensor.nbytes // 2 for tensor in others if tensor.dtype is FLOAT) * need.data
    everything = sum(tensor.nbytes for tensor in _on(executable, ipu))
    yield Remedy(advice[RemedyKind.FLOAT16], halves // max(everything, 1), 0.05)
    if moving:
        for kind, changed, price in _COMPILED[: 1 + remote]:
            other = run_passes(replace(step, options=changed(step.options))).executable
            saved = need.total - footprints(other, device.tiles_per_ipu)[ipu].total
            yield Remedy(advice[kind], saved, price)


def cheapest(found: Iterable[Remedy], missing: int) -> list[Remedy]:
    """Return at most three remedies: the cheapest that save ``missing`` bytes alone, then the most effective."""
    useful = [replace(one, suffices=one.saved >= missing) for one in found if one.saved > _LEAST * missing]
    useful.sort(key=lambda remedy: (not remedy.suffices, remedy.price if remedy.suffices else -remedy.saved))
    return useful[:_MOST_REMEDIES]


def _on(executable: Executable, ipu: int) -> Iterator[Tensor]:
    for placement in executable.plan.placements.values():
        there = ipu_of(placement.region) == ipu and not is_off_chip(placement.region)
        if there and placement.tensor.id not in executable.plan.views:
            yield placement.tensor


def _table(needs: Sequence[Footprint], limit: int) -> str:
    """A row per IPU: the bytes by purpose, their total, and the free bytes (negative above ``limit``)."""
    rows = [["IPU", *needs[0].parts(), "total", "free"]]
    for ipu, need in enumerate(needs):
        free = limit - need.total
        parts = [memory(part) for part in need.parts().values()]
        rows.append([str(ipu), *parts, memory(need.total), f"{'-' if free < 0 else ''}{memory(abs(free))}"])
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
