"""StagedInputs: which micro-batches of the next step are in Streaming Memory already, and are still valid.

If the feed knows the data of its next step, they are staged while the last micro-batches of this step compute. A step
with other data discards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ipu_emu.engine.calls.instruction_calls import HostPosition, StepFeedProtocol
from ipu_emu.ops import Call
from ipu_emu.program.overlapped_loops import OverlappedLoop

__all__ = ["LookaheadFeed", "StagedInputs"]


@runtime_checkable
class LookaheadFeed(StepFeedProtocol, Protocol):
    """A feed that may know the data of its next step."""

    #: The number of the current step.
    step: int

    def upcoming(self) -> StepFeedProtocol | None:
        """The data of step ``step + 1`` if they are ready; called after all data of this step are read."""


class StagedInputs:
    """Tracks the staged part of the next step, for ``replicas`` local replicas."""

    def __init__(self, loop: OverlappedLoop, host: HostPosition, replicas: int) -> None:
        self.loop, self.host, self.replicas = loop, host, replicas
        #: Micro-batches of this step that were staged before it began.
        self.there = 0
        self._next: StepFeedProtocol | None = None
        self._of: tuple[StepFeedProtocol, int] | None = None
        self._count = 0

    def begin(self) -> None:
        """Start a step: use the micro-batches that are staged for it, and skip them in the feed."""
        feed = self.host.current
        fits = isinstance(feed, LookaheadFeed) and self._of is not None
        fits = fits and self._of == (feed, getattr(feed, "step", None))
        self.there = self._count if fits else 0
        self.forget()
        for leaf in self.loop.loads:
            for _ in range(self.there * (1 if leaf.broadcast else self.replicas)):
                feed.read(leaf.tensor)

    def forget(self) -> None:
        """Discard the staged micro-batches."""
        self._next, self._of, self._count = None, None, 0

    def coming(self, number: int) -> Sequence[int]:
        """Micro-batches of the next step that may be staged while ``number`` computes."""
        if not self.loop.staged or not isinstance(self.host.current, LookaheadFeed):
            return ()
        total, ahead = self.loop.total, min(leaf.ahead for leaf in self.loop.loads)
        first = number + ahead if number else 1
        return range(max(total, first), min(2 * total, number + ahead + 1))

    def stage(self, number: int, load: Call) -> None:
        """Load a micro-batch of the next step, unless the feed did not have the previous one ready."""
        feed = self.host.current
        assert isinstance(feed, LookaheadFeed)
        if number - self.loop.total != self._count:
            return
        self._next = self._next or feed.upcoming()
        if self._next is None:
            return
        self._of, self.host.feed = (feed, feed.step + 1), self._next
        try:
            load()
        finally:
            self.host.feed = feed
        self._count += 1
