"""EarlyReductions: which gradients can be reduced between instances during the rest of the backward pass.

    backward     g3 ....... g2 ....... g1 .......  wait  update
    reductions         g3 ========= g2 ========= g1 ====

A bucket has its gradients in the order in which the backward pass completes them, so that each of its parts is
complete at some instruction of the last micro-batch, and its reduction can begin there. Elements are combined
independently, so that results do not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ipu_emu.program.buckets import Bucket
from ipu_emu.program.instructions import AllReduce, Counter, Instruction, Repeat, leaves, of_type
from ipu_emu.program.memory_plan import MemoryPlan
from ipu_emu.program.overlapped_loops import overlapped_io

#: The least bytes of a part, and the most parts of a bucket: every part costs separate messages.
_LEAST_BYTES, _MOST_PARTS = 1 << 19, 16


@dataclass(frozen=True)
class BucketPart:
    """Elements ``start`` to ``stop`` of every replica's row of a bucket, which are combined by ``operator``."""

    bucket: str
    operator: str
    start: int
    stop: int


@dataclass(frozen=True)
class EarlyReductions:
    """The parts of each bucket, and for the body of ``loop`` those that are complete after its n-th instruction."""

    loop: Repeat
    begins: Mapping[int, Sequence[BucketPart]]
    parts: Mapping[str, Sequence[BucketPart]]

    @classmethod
    def of(cls, program: Iterable[Instruction], plan: MemoryPlan, *, joint: bool = False) -> EarlyReductions | None:
        """The reductions of ``program`` that can begin early; None unless there are several.

        With ``joint`` a bucket is one part: ranges of it are not contiguous if an instance has several replicas.
        """
        for batches in of_type(program, Repeat):
            loop, after = batches.body[0], batches.body[1:]
            if isinstance(loop, Repeat) and loop.counter is Counter.MICRO_BATCH and not any(overlapped_io(batches)):
                return _of_loop(loop, after, plan, joint=joint)
        return None


def _of_loop(loop: Repeat, after: Sequence[Instruction], plan: MemoryPlan, *, joint: bool) -> EarlyReductions | None:
    begins: dict[int, list[BucketPart]] = {}
    parts: dict[str, list[BucketPart]] = {}
    for number, reduction in enumerate(after):
        if not isinstance(reduction, AllReduce) or not _is_divisible(reduction):
            continue
        for part, complete in _parts(reduction, loop.body, after[:number], plan, joint=joint):
            parts.setdefault(reduction.bucket, []).append(part)
            if complete is not None:
                begins.setdefault(complete, []).append(part)
    several = sum(map(len, begins.values())) > 1
    return EarlyReductions(loop, begins, parts) if several else None


def _is_divisible(reduction: AllReduce) -> bool:
    """Whether parts can be reduced separately: over all replicas, and without stochastic rounding of the bucket."""
    return not reduction.rounded and Bucket.named(reduction.bucket).group is None


def _parts(
    reduction: AllReduce,
    body: Sequence[Instruction],
    between: Sequence[Instruction],
    plan: MemoryPlan,
    *,
    joint: bool,
) -> Iterator[tuple[BucketPart, int | None]]:
    """The parts of a bucket, with the number of the last instruction of ``body`` that uses each.

    None for a part that no instruction of ``body`` uses, or that an instruction ``between`` loop and reduction uses.
    """
    region = reduction.bucket
    size, itemsize = plan.sizes[region], Bucket.named(region).dtype.itemsize
    least = size if joint else max(_LEAST_BYTES, -(-size // _MOST_PARTS))
    users, late = _last_users(region, body, plan), _last_users(region, between, plan)
    starts = sorted({place.offset for place in plan.placements.values() if place.region == region})
    for first, last in _ranges(starts, size, least):
        own = [start for start in starts if first <= start < last]
        known = bool(own) and all(start in users and start not in late for start in own)
        part = BucketPart(region, reduction.operator, first // itemsize, last // itemsize)
        yield part, max(users[start] for start in own) if known else None


def _last_users(region: str, instructions: Iterable[Instruction], plan: MemoryPlan) -> dict[int, int]:
    """The offsets in ``region`` that instructions use, each with the number of the last one."""
    users: dict[int, int] = {}
    for number, instruction in enumerate(instructions):
        for id in (id for leaf in leaves([instruction]) for id in leaf.tensors):
            place = plan.placements.get(id)
            if place is not None and place.region == region:
                users[place.offset] = number
    return users


def _ranges(starts: Sequence[int], size: int, least: int) -> Iterator[tuple[int, int]]:
    """Divide ``size`` bytes at some of ``starts`` into ranges of at least ``least`` bytes, except the last one."""
    first = 0
    for start in starts:
        if start - first >= least:
            yield first, start
            first = start
    yield first, size
