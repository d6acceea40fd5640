"""Footprint: the memory that a program takes on each IPU of a replica, in bytes.

variables    weights, optimiser states, constants: always live
gradients    buckets and workspaces of collectives: always live
stashes      tensors that a pipeline keeps for several micro-batches
FIFOs        stashes of tensors from another IPU
transient    all other tensors: those whose lifetimes do not overlap share memory
code         16 KiB per tile, and 256 bytes per tile for each kind of op on the IPU
vertices     16 bytes per worker of each tile that an op uses, which processes 64 elements at a time; none for copies
exchange     32 bytes of code for each such tile, and a buffer for the largest tensor from the host or another IPU

Streaming Memory is not on the IPU: see MemoryPlan.streaming_bytes_of. The engine allocates exactly the first five
kinds, and scratch: FLOAT copies and workspaces of kernels of the host, which are not memory of an IPU. The last three
are estimates of what a real IPU needs in addition (technical note "Memory and performance optimisation",
section 4); the engine allocates nothing for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import accumulate

from ipu_emu.graph import Op
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import IpuCopy, host_transfers, leaves, of_type
from ipu_emu.program.memory_layout import aligned
from ipu_emu.program.memory_plan import PERSISTENT, Allocation, MemoryPlan, ipu_of, is_off_chip, region_of

_RUNTIME, _CODE_PER_KIND = 16 * 1024, 256
_VERTEX, _WORKERS, _ELEMENTS = 16, 6, 64
_EXCHANGE_PER_TILE = 32


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
    return Footprint(
        variables=variables,
        gradients=gradients,
        stashes=min(stashes, transient),
        fifos=min(fifos, max(transient - stashes, 0)),
        transient=max(transient - stashes - fifos, 0),
        code=tiles * (_RUNTIME + _CODE_PER_KIND * len({leaf.ops[0].type for leaf in here})),
        vertices=_VERTEX * _WORKERS * working,
        exchange=_EXCHANGE_PER_TILE * sum(busy) + _buffer(executable, ipu),
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


def _buffer(executable: Executable, ipu: int) -> int:
    """Bytes of the largest tensor that the IPU transfers to or from the host, or gets from another IPU."""
    placements: Mapping[str, Allocation] = executable.plan.placements
    ids = [leaf.tensor for leaf in host_transfers(executable.program)]
    ids += [leaf.op.outputs[0] for leaf in of_type(leaves(executable.program), IpuCopy)]
    there = [id for id in ids if id in placements and ipu_of(placements[id].region) == ipu]
    return max((placements[id].tensor.nbytes for id in there), default=0)
