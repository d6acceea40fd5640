"""memory_plan: what a memory plan says of each IPU: what is always live, and how the rest comes and goes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate

from ipu_emu.graph import Role
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import leaves
from ipu_emu.program.memory import PERSISTENT, TRANSIENT, MemoryPlan, ipu_of

__all__ = ["PARTS", "IpuMemory", "ipu_memories"]

_ROLES = {Role.WEIGHT: "weights", Role.STATE: "optimiser states"}
_OTHERS, _BUCKETS, _STASHES, _REST = "other variables", "gradients", "stashes", "not always live"
#: What the memory of an IPU is divided into.
PARTS = ("weights", "optimiser states", _OTHERS, _BUCKETS, _STASHES, _REST)


@dataclass(frozen=True)
class IpuMemory:
    """Bytes of one IPU by part; ``live`` are those of its transient region at each instruction of the program."""

    ipu: int
    parts: dict[str, int]
    live: tuple[int, ...]
    largest: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def ipu_memories(executable: Executable) -> list[IpuMemory]:
    """Every IPU of a replica."""
    length = sum(1 for _ in leaves(executable.program))
    return [_of(executable.plan, ipu, length) for ipu in range(executable.plan.ipus)]


def _of(plan: MemoryPlan, ipu: int, length: int) -> IpuMemory:
    parts = dict.fromkeys(PARTS, 0) | _regions(plan, ipu)
    sizes: dict[str, int] = {}
    for placement in plan.placements.values():
        if placement.region.partition(":")[0] == PERSISTENT and ipu_of(placement.region) == ipu:
            role = _ROLES.get(placement.tensor.role)
            if role and placement.tensor.id not in plan.views:
                parts[role] += placement.tensor.nbytes
                parts[_OTHERS] -= placement.tensor.nbytes
                sizes[placement.tensor.id] = placement.tensor.nbytes
    lives = [life for life in plan.lives if ipu_of(life.region) == ipu]
    sizes |= {life.name: life.size for life in lives}
    largest = sorted(sizes.items(), key=lambda entry: -entry[1])[:8]
    return IpuMemory(ipu, parts, _live(plan, ipu, length), tuple(largest))


def _regions(plan: MemoryPlan, ipu: int) -> dict[str, int]:
    """Bytes of the regions; what is persistent counts as other until it is known better."""
    stashed = {id: p for id, p in plan.placements.items() if p.places > 1 and p.region.startswith(TRANSIENT)}
    found: dict[str, int] = defaultdict(int)
    for region, size in plan.sizes.items():
        if ipu_of(region) == ipu:
            kind = region.partition(":")[0]
            found[{PERSISTENT: _OTHERS, TRANSIENT: _REST}.get(kind, _BUCKETS)] += size
    kept = sum(life.size for life in plan.lives if life.name in stashed and ipu_of(life.region) == ipu)
    found[_STASHES] += kept
    found[_REST] -= kept
    return found


def _live(plan: MemoryPlan, ipu: int, length: int) -> tuple[int, ...]:
    change = [0] * (length + 1)
    for life in plan.lives:
        if ipu_of(life.region) == ipu:
            change[life.first] += life.size
            change[life.last + 1] -= life.size
    return tuple(accumulate(change[:length]))
