"""Out of memory: whether a program fits the memory of its IPUs, and the error if it does not.

The limits are the memory of the tiles of an IPU and its share of Streaming Memory; a Cpu or Sim device has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from gcl.drawing.units import memory
from ipu_emu.compiler.memory.memory_remedies import MemoryNeed, Remedies
from ipu_emu.errors import OutOfMemoryError
from ipu_emu.graph import Op
from ipu_emu.hardware import GENERATIONS, Device, DeviceKind
from ipu_emu.program.executable import Executable
from ipu_emu.program.footprint import Footprint, footprints
from ipu_emu.program.instructions import leaves
from ipu_emu.program.memory_plan import is_off_chip

_LIMITED = (DeviceKind.IPU, DeviceKind.OFFLINE, DeviceKind.IPU_MODEL)


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


def memory_need(executable: Executable, device: Device, forward: Executable | None = None) -> MemoryNeed | None:
    """Return the memory that the fullest IPU needs; None if there is no limit.

    ``forward`` is a second program of the same variables.
    """
    limit = memory_of(device)
    if limit is None:
        return None
    needs = [need.total for need in _footprints(executable, device, forward)]
    ipu = needs.index(max(needs))
    share, plan = GENERATIONS[device.version].streaming_memory, executable.plan
    lacking = max(plan.streaming_bytes_of(ipu) for ipu in range(plan.ipus)) - share
    return MemoryNeed(ipu, needs[ipu], limit, max(lacking, 0))


def check_memory(
    executable: Executable,
    device: Device,
    *,
    forward: Executable | None = None,
    remedies: Callable[[MemoryNeed], Remedies],
) -> None:
    """Raise OutOfMemoryError if an IPU needs more memory than it has; ``remedies`` searches for remedies.

    ``forward`` is a second program of the same variables.
    """
    _check_streaming_memory(executable, device)
    need = memory_need(executable, device, forward)
    if need is None or need.fits:
        return
    notes = filter(None, (too_large_for_an_ipu(executable, need.limit), str(remedies(need))))
    table = _table(_footprints(executable, device, forward), need)
    raise OutOfMemoryError(
        f"Out of memory: IPU {need.ipu} needs {memory(need.nbytes)} and has {memory(need.limit)}, which is "
        f"{memory(need.missing)} too little. Memory by IPU:\n" + "\n".join([table, *notes])
    )


def too_large_for_an_ipu(executable: Executable, limit: int) -> str:
    """Name the largest tensor of an op whose inputs do not fit on one IPU; return '' if there is no such op."""
    ops = {op.outputs[0]: op for leaf in leaves(executable.program) for op in leaf.ops}.values()
    op = max(ops, key=lambda op: _read_at_once(executable, op), default=None)
    if op is None or _read_at_once(executable, op) <= limit:
        return ""
    largest = max((executable.graph.tensor(id) for id in op.inputs if id), key=lambda tensor: tensor.nbytes)
    return (
        f"More IPUs alone can never help: {op.type} reads {largest.id} ({memory(largest.nbytes)}) and in total "
        f"{memory(_read_at_once(executable, op))} at once, and an op runs on one IPU, which has {memory(limit)}. If "
        "no remedy below suffices, split this tensor in the model"
    )


def _read_at_once(executable: Executable, op: Op) -> int:
    """The bytes of all tensors that an op reads on its IPU; a view counts as the tensor that it is a view of."""
    plan = executable.plan
    read = {id for id in op.inputs if id and id in plan.placements and id not in plan.views}
    return sum(plan.placements[id].tensor.nbytes for id in read if not is_off_chip(plan.placements[id].region))


def _footprints(executable: Executable, device: Device, forward: Executable | None) -> list[Footprint]:
    needs = footprints(executable, device.tiles_per_ipu)
    if forward is None:
        return needs
    others = footprints(forward, device.tiles_per_ipu)
    return [need.shared_with(other) for need, other in zip_longest(needs, others, fillvalue=Footprint())]


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


def _table(needs: Sequence[Footprint], worst: MemoryNeed) -> str:
    """A row per IPU: the bytes by purpose, their total, and the free bytes (negative if too few)."""
    rows = [["IPU", *needs[0].parts(), "total", "free"]]
    for ipu, need in enumerate(needs):
        free = worst.limit - need.total
        parts = [memory(part) for part in need.parts().values()]
        rows.append([str(ipu), *parts, memory(need.total), f"{'-' if free < 0 else ''}{memory(abs(free))}"])
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
