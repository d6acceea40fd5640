"""Footprint: the memory that a program takes on each IPU of a replica, in bytes, and the error if it does not fit.

variables    weights, optimiser states, constants: always live
gradients    buckets and workspaces of collectives: always live
stashes      tensors that a pipeline keeps for several micro-batches
FIFOs        stashes of tensors from another IPU
transient    all other tensors: those whose lifetimes do not overlap share memory
code         16 KiB per tile, and 256 bytes per tile for each kind of op on the IPU
vertices     16 bytes per worker of each tile that an op uses, which processes 64 elements at a time; none for copies
exchange     between tiles: 32 bytes of code for each such tile. Between IPUs, and with host and Streaming Memory: the
             same for each copy, and a buffer for the largest tensor; a collective has code for two exchanges with
             each other replica

Streaming Memory is not on the IPU: see MemoryPlan.streaming_bytes_of. The engine allocates exactly the first five
kinds, and scratch: FLOAT copies and workspaces of kernels of the host, which are not memory of an IPU. The last three
are estimates of what a real IPU needs in addition (technical note "Memory and performance optimisation",
section 4); the engine allocates nothing for them.

The limits are the memory of the tiles of an IPU and its share of Streaming Memory; a Cpu or Sim device has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, zip_longest

from gcl.drawing.units import memory
from ipu_emu.errors import OutOfMemoryError
from ipu_emu.graph import Op
from ipu_emu.hardware import GENERATIONS, Device, DeviceKind
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AllReduce,
    IpuCopy,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    host_transfers,
    leaves,
    of_type,
)
from ipu_emu.program.memory_layout import aligned
from ipu_emu.program.memory_plan import PERSISTENT, Allocation, MemoryPlan, ipu_of, is_off_chip, region_of

_RUNTIME, _CODE_PER_KIND = 16 * 1024, 256
_VERTEX, _WORKERS, _ELEMENTS = 16, 6, 64
_EXCHANGE_PER_TILE = 32
_LIMITED = (DeviceKind.IPU, DeviceKind.OFFLINE, DeviceKind.IPU_MODEL)


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that the fullest IPU of a replica needs and has; ``streaming`` is the shortage of Streaming Memory."""

    ipu: int
    nbytes: int
    limit: int
    streaming: int = 0

    @property
    def missing(self) -> int:
        """The shortage in bytes; negative if memory is free."""
        return self.nbytes - self.limit + self.streaming

    @property
    def fits(self) -> bool:
        return self.nbytes <= self.limit and not self.streaming

    def __str__(self) -> str:
        return f"{memory(self.nbytes)} of {memory(self.limit)} on IPU {self.ipu}, the fullest"


@dataclass(frozen=True)
class Footprint:
    """Bytes on one IPU, by use."""

    variables: int = 0
    gradients: int = 0
    stashes: int = 0
    fifos: int = 0
    transient: int = 0
    code: int = 0
    vertices: int = 0
    exchange: int = 0
    ipu_exchange: int = 0
    host_exchange: int = 0
    scratch: int = 0

    @property
    def data(self) -> int:
        """The bytes that the engine allocates, with its scratch."""
        return self.variables + self.gradients + self.stashes + self.fifos + self.transient + self.scratch

    @property
    def total(self) -> int:
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Bytes by name, without scratch of the host."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "scratch"}

    def shared_with(self, other: Footprint) -> Footprint:
        """The footprint of two programs that share their variables."""
        both = other.parts()
        sums = {name: size + both[name] for name, size in self.parts().items()}
        sums |= {"variables": max(self.variables, other.variables), "scratch": self.scratch + other.scratch}
        return Footprint(**sums)


def footprints(executable: Executable, tiles: int) -> list[Footprint]:
    """The footprint on each IPU of a replica; an IPU has ``tiles`` tiles."""
    return [_of(executable, ipu, tiles) for ipu in range(executable.plan.ipus)]


def _of(executable: Executable, ipu: int, tiles: int) -> Footprint:
    plan = executable.plan
    copied = {leaf.op.outputs[0] for leaf in of_type(leaves(executable.program), IpuCopy)}
    stashed = {id: _held(p) for id, p in plan.placements.items() if _is_stash(plan, id, p, ipu)}
    fifos = sum(size for id, size in stashed.items() if id in copied)
    stashes = sum(stashed.values()) - fifos
    variables = plan.sizes.get(region_of(PERSISTENT, ipu), 0)
    gradients = sum(size for region, size in plan.sizes.items() if Bucket.is_bucket(region) and ipu_of(region) == ipu)
    allocated = plan.bytes_of(ipu) - variables - gradients
    transient = min(allocated, _peak(plan, ipu)) if plan.lives else allocated
    here = [leaf for leaf in leaves(executable.program) if any(op.place.ipu == ipu for op in leaf.ops[:1])]
    busy = [_busy(executable, leaf.ops[0], tiles) for leaf in here]
    working = sum(count for count, leaf in zip(busy, here, strict=True) if not leaf.is_copy)
    moving = sum(count for count, leaf in zip(busy, here, strict=True) if isinstance(leaf, RemoteLoad | RemoteStore))
    replicas = _collective_tiles(executable, ipu, tiles) * 2 * (max(2, executable.step.replicas) - 1)
    transferred = [leaf.tensor for leaf in host_transfers(executable.program)]
    return Footprint(
        variables=variables,
        gradients=gradients,
        stashes=min(stashes, transient),
        fifos=min(fifos, max(transient - stashes, 0)),
        transient=max(transient - stashes - fifos, 0),
        code=tiles * (_RUNTIME + _CODE_PER_KIND * len({leaf.ops[0].type for leaf in here})),
        vertices=_VERTEX * _WORKERS * working,
        exchange=_EXCHANGE_PER_TILE * working,
        ipu_exchange=_exchange(plan, copied, ipu, tiles) + _EXCHANGE_PER_TILE * replicas,
        host_exchange=_exchange(plan, transferred, ipu, tiles) + _EXCHANGE_PER_TILE * moving,
        scratch=allocated - transient,
    )


def _peak(plan: MemoryPlan, ipu: int) -> int:
    """The most bytes of transient tensors that are live at a time on ``ipu``, without scratch of the host."""
    change: dict[int, int] = {}
    for life in plan.lives:
        if ipu_of(life.region) == ipu and not is_off_chip(life.region) and not life.is_scratch:
            change[life.first] = change.get(life.first, 0) + life.size
            change[life.last + 1] = change.get(life.last + 1, 0) - life.size
    return max(accumulate(change[time] for time in sorted(change)), default=0)


def _is_stash(plan: MemoryPlan, id: str, placement: Allocation, ipu: int) -> bool:
    here = ipu_of(placement.region) == ipu and not is_off_chip(placement.region)
    return placement.places > 1 and here and id not in plan.views


def _held(placement: Allocation) -> int:
    return placement.places * aligned(placement.tensor.nbytes)


def _busy(executable: Executable, op: Op, tiles: int) -> int:
    """The number of tiles that an op uses; 0 for a view."""
    return 0 if op.outputs[0] in executable.plan.views else min(tiles, -(-_elements(executable, op) // _ELEMENTS))


def _elements(executable: Executable, op: Op) -> int:
    return max(executable.graph.tensor(id).nelms for id in op.outputs if id)


def _exchange(plan: MemoryPlan, ids: Iterable[str], ipu: int, tiles: int) -> int:
    """Bytes of code to send or receive each of the tensors that are on ``ipu``, and of a buffer for the largest."""
    placements = [plan.placements[id] for id in ids if id in plan.placements]
    tensors = [placement.tensor for placement in placements if ipu_of(placement.region) == ipu]
    code = sum(min(tiles, -(-tensor.nelms // _ELEMENTS)) for tensor in tensors)
    return _EXCHANGE_PER_TILE * code + max((tensor.nbytes for tensor in tensors), default=0)


def _collective_tiles(executable: Executable, ipu: int, tiles: int) -> int:
    """The tiles that the collectives between replicas on ``ipu`` use, summed over the collectives."""
    program = list(leaves(executable.program))
    buckets = [leaf.bucket for leaf in of_type(program, AllReduce) if ipu_of(leaf.bucket) == ipu]
    elements = [executable.plan.sizes[name] // Bucket.named(name).dtype.itemsize for name in buckets]
    ops = [op for leaf in program if isinstance(leaf, ReplicaCollective | ShardCollectives) for op in leaf.ops]
    elements += [_elements(executable, op) for op in ops if op.place.ipu == ipu]
    return sum(min(tiles, -(-count // _ELEMENTS)) for count in elements)


# Whether it fits


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
    remedies: Callable[[MemoryNeed], object],
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
