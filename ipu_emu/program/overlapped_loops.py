"""OverlappedLoop: the loops of a step with host I/O during compute, as separate loads, work, stores and updates.

repeat M batch
  repeat N micro-batch
    HostLoad x (during the adjacent ...)    loads
    Compute ...                             work
    HostStore y (during the adjacent ...)   stores
  AllReduce, WeightUpdate, ...              after
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ipu_emu.program.instructions import (
    Counter,
    HostLoad,
    HostStore,
    Instruction,
    Leaf,
    Overlap,
    Pipeline,
    Repeat,
    host_transfers,
    leaves,
    of_type,
    walk,
)
from ipu_emu.program.memory_plan import MemoryPlan


@dataclass(frozen=True)
class OverlappedLoop:
    """``batches`` of ``micro_batches``, which are loaded, processed and stored; ``after`` runs after each batch."""

    batches: int
    micro_batches: int
    loads: tuple[HostLoad, ...]
    work: tuple[Leaf, ...]
    stores: tuple[HostStore, ...]
    after: tuple[Leaf, ...]

    @classmethod
    def of(cls, instruction: Instruction, plan: MemoryPlan) -> OverlappedLoop | None:
        """The loops of ``instruction``, or None if it has no host I/O during compute."""
        if not any(True for _ in overlapped_io(instruction)):
            return None
        outer, inner = of_type(walk([instruction]), Repeat)
        body = [_just_in_time(leaf, plan) for leaf in leaves([inner])]
        return cls(
            outer.times,
            inner.times,
            tuple(of_type(body, HostLoad)),
            tuple(leaf for leaf in body if not leaf.is_host_io),
            tuple(of_type(body, HostStore)),
            tuple(leaves(outer.body[1:])),
        )

    @property
    def total(self) -> int:
        """Micro-batches of a step."""
        return self.batches * self.micro_batches

    @property
    def staged(self) -> bool:
        """Whether all inputs are staged in Streaming Memory, so that those of the next step may be loaded already."""
        return bool(self.loads) and all(leaf.overlap is Overlap.STAGED for leaf in self.loads)

    def coming(self, number: int, there: int) -> list[tuple[int, list[HostLoad]]]:
        """The micro-batches that are loaded during ``number``; the first ``there`` were loaded before the step."""
        most = max((leaf.ahead for leaf in self.loads), default=1)
        loads = [
            (
                later,
                [leaf for leaf in self.loads_for(later, overlapped=True) if self._begins(leaf, later, number, there)],
            )
            for later in range(number + 1, min(number + most + 1, self.total))
        ]
        return [(later, leaves) for later, leaves in loads if leaves]

    def _begins(self, leaf: HostLoad, later: int, number: int, there: int) -> bool:
        return there <= later <= leaf.ahead if number == 0 else later == number + leaf.ahead

    def is_overlapped(self, overlap: Overlap, number: int) -> bool:
        """Whether micro-batch ``number`` is loaded during the previous one, which is stored during ``number``.

        Without accumulation the loop over batches is the inner one.
        """
        if not 0 < number < self.total:
            return False
        inner = self.micro_batches if self.micro_batches > 1 else self.total
        return overlap is not Overlap.NONE and (overlap is not Overlap.INNER or number % inner != 0)

    def loads_for(self, number: int, *, overlapped: bool) -> Sequence[HostLoad]:
        """The loads for a micro-batch: those during the previous one, or those just in time."""
        known = 0 <= number < self.total
        return [leaf for leaf in self.loads if known and self.is_overlapped(leaf.overlap, number) is overlapped]

    def neighbours(self, number: int) -> list[HostLoad | HostStore]:
        """The host transfers while a micro-batch computes."""
        return [*self.stores_of(number - 1, overlapped=True), *self.loads_for(number + 1, overlapped=True)]

    def stores_of(self, number: int, *, overlapped: bool) -> Sequence[HostStore]:
        """The stores of a micro-batch: those during the next one, or those just in time."""
        known = 0 <= number < self.total
        return [leaf for leaf in self.stores if known and self.is_overlapped(leaf.overlap, number + 1) is overlapped]


def overlapped_io(instruction: Instruction) -> Iterator[HostLoad | HostStore]:
    """The host transfers during compute in a loop over batches; pipelines have their own rules."""
    for loop in of_type([instruction], Repeat):
        if loop.counter is Counter.BATCH and not of_type(loop.body, Pipeline):
            yield from (leaf for leaf in host_transfers([loop]) if leaf.overlap is not Overlap.NONE)


def _just_in_time(leaf: Leaf, plan: MemoryPlan) -> Leaf:
    """``leaf``; without overlap if its tensor has only one buffer, which compute uses."""
    for transfer in host_transfers([leaf]):
        if plan.placements[transfer.tensor].places == 1:
            return replace(transfer, overlap=Overlap.NONE)
    return leaf
