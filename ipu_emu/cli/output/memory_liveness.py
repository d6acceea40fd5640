"""memory_plan: what a memory plan says of each IPU: what is always live, and how the rest comes and goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from ipu_emu.graph import Role, Tensor
from ipu_emu.program.executable import Executable
from ipu_emu.program.footprint import Footprint, footprints
from ipu_emu.program.instructions import leaves
from ipu_emu.program.memory_plan import PERSISTENT, Lifetime, MemoryPlan, ipu_of, is_off_chip

__all__ = ["LIVE", "PARTS", "IpuMemory", "ipu_memories"]

_ROLES = {Role.WEIGHT: "weights", Role.STATE: "optimiser states"}
_OTHERS = "other variables"
#: Parts that a footprint has, by its own names for them.
_FOOTPRINT = {
    "gradients": "gradients",
    "stashes": "stashes",
    "fifos": "FIFOs",
    "transient": "not always live",
    "code": "code",
    "vertices": "vertices",
    "exchange": "exchange",
}
#: What the memory of an IPU is divided into.
PARTS = (*_ROLES.values(), _OTHERS, *_FOOTPRINT.values())
#: Those that come and go.
LIVE = ("stashes", "FIFOs", "not always live")
_LARGEST = 8


@dataclass(frozen=True)
class IpuMemory:
    """Bytes of one IPU by part; ``live`` are those of its transient region at each instruction of the program.

    ``streaming`` are bytes of Streaming Memory, which are in no part.
    """

    ipu: int
    parts: dict[str, int]
    live: tuple[int, ...]
    largest: tuple[tuple[str, int], ...]
    streaming: int = 0

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def most_live(self) -> int:
        return max(self.live, default=0)


def ipu_memories(executable: Executable, tiles: int) -> list[IpuMemory]:
    """Every IPU of a replica; an IPU has so many ``tiles``."""
    length = sum(1 for _ in leaves(executable.program))
    needs = footprints(executable, tiles)
    return [_of(executable.plan, ipu, length, need) for ipu, need in enumerate(needs)]


def _of(plan: MemoryPlan, ipu: int, length: int, need: Footprint) -> IpuMemory:
    kept = list(_variables(plan, ipu))
    by_role: dict[str, int] = defaultdict(int)
    for tensor in kept:
        by_role[_ROLES[tensor.role]] += tensor.nbytes
    named = need.parts()
    parts = {name: by_role[name] for name in _ROLES.values()} | {_OTHERS: need.variables - sum(by_role.values())}
    parts |= {name: named[field] for field, name in _FOOTPRINT.items()}
    sizes = {tensor.id: tensor.nbytes for tensor in kept}
    sizes |= {life.name: life.size for life in _lives(plan, ipu)}
    largest = sorted(sizes.items(), key=lambda entry: -entry[1])[:_LARGEST]
    return IpuMemory(ipu, parts, _live(plan, ipu, length), tuple(largest), plan.streaming_bytes_of(ipu))


def _variables(plan: MemoryPlan, ipu: int) -> Iterator[Tensor]:
    """Weights and optimiser states that lie on an IPU for good."""
    for placement in plan.placements.values():
        lasting = placement.region.partition(":")[0] == PERSISTENT and ipu_of(placement.region) == ipu
        if lasting and placement.tensor.role in _ROLES and placement.tensor.id not in plan.views:
            yield placement.tensor


def _lives(plan: MemoryPlan, ipu: int) -> list[Lifetime]:
    """What comes and goes on an IPU."""
    return [life for life in plan.lives if ipu_of(life.region) == ipu and not is_off_chip(life.region)]


def _live(plan: MemoryPlan, ipu: int, length: int) -> tuple[int, ...]:
    change = [0] * (length + 1)
    for life in _lives(plan, ipu):
        change[life.first] += life.size
        change[life.last + 1] -= life.size
    return tuple(accumulate(change[:length]))
