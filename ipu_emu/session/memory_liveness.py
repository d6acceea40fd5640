"""Memory liveness: the memory of each IPU by use, and its live bytes at each instruction, from a memory plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from ipu_emu.graph import Role, Tensor
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import leaves
from ipu_emu.program.memory_plan import PERSISTENT, Lifetime, MemoryPlan, ipu_of, is_off_chip
from ipu_emu.session.footprint import Footprint, footprints

_ROLES = {Role.WEIGHT: "weights", Role.STATE: "optimiser states"}
_OTHERS = "other variables"
#: Names of the parts of a footprint.
_FOOTPRINT = {
    "gradients": "gradients",
    "stashes": "stashes",
    "fifos": "FIFOs",
    "transient": "transient",
    "code": "code",
    "vertices": "vertices",
    "exchange": "exchange",
    "ipu_exchange": "IPU exchange",
    "host_exchange": "host exchange",
}
#: The parts of the memory of an IPU.
PARTS = (*_ROLES.values(), _OTHERS, *_FOOTPRINT.values())
#: The parts that are estimates; those of exchange are between tiles, between IPUs, and with the host.
ESTIMATED = ("code", "vertices", "exchange", "IPU exchange", "host exchange")
_LARGEST = 8


@dataclass(frozen=True)
class IpuMemory:
    """Bytes of one IPU by part; ``live`` are those of its transient region at each instruction of the program.

    ``streaming`` bytes of Streaming Memory belong to no part.
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
    def data(self) -> int:
        """Bytes without code, vertices and exchange, which are estimates."""
        return self.total - sum(self.parts[part] for part in ESTIMATED)

    @property
    def peak_live(self) -> int:
        return max(self.live, default=0)


def ipu_memories(executable: Executable, tiles: int) -> list[IpuMemory]:
    """Return the memory of each IPU of a replica; an IPU has ``tiles`` tiles."""
    length = sum(1 for _ in leaves(executable.program))
    needs = footprints(executable, tiles)
    return [_of(executable.plan, ipu, length, need) for ipu, need in enumerate(needs)]


def _of(plan: MemoryPlan, ipu: int, length: int, need: Footprint) -> IpuMemory:
    variables = list(_variables(plan, ipu))
    by_role: dict[str, int] = defaultdict(int)
    for tensor in variables:
        by_role[_ROLES[tensor.role]] += tensor.nbytes
    named = need.parts()
    parts = {name: by_role[name] for name in _ROLES.values()} | {_OTHERS: need.variables - sum(by_role.values())}
    parts |= {name: named[field] for field, name in _FOOTPRINT.items()}
    sizes = {tensor.id: tensor.nbytes for tensor in variables}
    sizes |= {life.name: life.size for life in _lives(plan, ipu)}
    largest = sorted(sizes.items(), key=lambda entry: -entry[1])[:_LARGEST]
    return IpuMemory(ipu, parts, _live(plan, ipu, length), tuple(largest), plan.streaming_bytes_of(ipu))


def _variables(plan: MemoryPlan, ipu: int) -> Iterator[Tensor]:
    """Yield the weights and optimiser states that are persistent on an IPU."""
    for placement in plan.placements.values():
        lasting = placement.region.partition(":")[0] == PERSISTENT and ipu_of(placement.region) == ipu
        if lasting and placement.tensor.role in _ROLES and placement.tensor.id not in plan.views:
            yield placement.tensor


def _lives(plan: MemoryPlan, ipu: int) -> list[Lifetime]:
    """Return the lifetimes of all that is not persistent on an IPU, without scratch of the host."""
    lives = (life for life in plan.lives if ipu_of(life.region) == ipu and not is_off_chip(life.region))
    return [life for life in lives if not life.is_scratch]


def _live(plan: MemoryPlan, ipu: int, length: int) -> tuple[int, ...]:
    change = [0] * (length + 1)
    for life in _lives(plan, ipu):
        change[life.first] += life.size
        change[life.last + 1] -= life.size
    return tuple(accumulate(change[:length]))
