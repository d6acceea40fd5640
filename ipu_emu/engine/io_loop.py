"""BoundOverlappedLoop: the loops of a step while a thread transfers the data of other micro-batches with the host.

    caller    load 0   compute 0   compute 1          compute 2          update   store 2
    thread             load 1      store 0, load 2    store 1

The caller waits for the transfers that a micro-batch needs, so results do not depend on timing. At any time one
thread reads inputs from the feed, and one writes outputs. Staged inputs (see ``staged_inputs``) are loaded further
ahead, up to those of the next step; then the caller may write outputs while the thread reads inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Protocol, runtime_checkable

from ipu_emu.engine.bound_parts import StepContext
from ipu_emu.engine.calls.instruction_calls import Binder, HostPosition, StepFeedProtocol
from ipu_emu.engine.calls.multi_buffered_calls import MultiBufferedBinder, MultiBufferedCalls
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.engine.calls.wall_time import Timer, WallCategory
from ipu_emu.engine.threads.background_thread import BackgroundTask, BackgroundThread
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call
from ipu_emu.program.instructions import HostLoad, HostStore, Overlap
from ipu_emu.program.overlapped_loops import OverlappedLoop


@runtime_checkable
class _LookaheadFeed(StepFeedProtocol, Protocol):
    """A feed that may know the data of its next step."""

    #: The number of the current step.
    step: int

    def upcoming(self) -> StepFeedProtocol | None:
        """The data of step ``step + 1`` if they are ready; called after all data of this step are read."""


class _StagedInputs:
    """Tracks the staged part of the next step, for ``replicas`` local replicas.

    If the feed knows the data of its next step, they are staged while the last micro-batches of this step compute. A
    step with other data discards them.
    """

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
        fits = isinstance(feed, _LookaheadFeed) and self._of is not None
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
        if not self.loop.staged or not isinstance(self.host.current, _LookaheadFeed):
            return ()
        total, ahead = self.loop.total, min(leaf.ahead for leaf in self.loop.loads)
        first = number + ahead if number else 1
        return range(max(total, first), min(2 * total, number + ahead + 1))

    def stage(self, number: int, load: Call) -> None:
        """Load a micro-batch of the next step, unless the feed did not have the previous one ready."""
        feed = self.host.current
        assert isinstance(feed, _LookaheadFeed)
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


class BoundOverlappedLoop:
    """Loops on the memory of the replicas, and the thread that transfers data meanwhile."""

    def __init__(self, loop: OverlappedLoop, binder: Binder) -> None:
        self.loop, self.host = loop, binder.host
        self._stored = StepCounters()  # the micro-batch being stored
        self._source = HostPosition()  # the feed from which inputs are read
        self._steps = 0
        compute = MultiBufferedBinder(binder, [self.host.counters] * len(binder.buffers), self.host.counters)
        storing = MultiBufferedBinder(binder, (), self._stored)
        reading = copy(binder)
        reading.host = self._source
        loading = MultiBufferedBinder(reading, (), StepCounters())
        self._work, self._after = compute.by_category(loop.work), compute.by_category(loop.after)
        self._loads = {leaf: loading.bind(WallCategory.HOST_IO, [leaf]) for leaf in loop.loads}
        self._stores = {leaf: storing.bind(WallCategory.HOST_IO, [leaf]) for leaf in loop.stores}
        #: Whether the caller writes all outputs, at any time.
        self._caller_writes = loop.staged and all(leaf.overlap is Overlap.NONE for leaf in loop.stores)
        self._thread = BackgroundThread("host-io-0")
        self._tasks: dict[int, list[BackgroundTask]] = {}  # by the micro-batch that must wait for them
        self.staging = _StagedInputs(loop, self._source, len(binder.buffers))

    def run(self, context: StepContext) -> None:
        """Run all batches."""
        workers, timer = context.workers, context.wall.timed
        self._tasks = defaultdict(list)
        self._source.feed = self.host.feed
        self.staging.begin()
        try:
            for number in range(self.loop.total):
                timer(WallCategory.HOST_IO, partial(self._begin, number))
                self.host.counters.batch, self.host.counters.micro_batch = divmod(number, self.loop.micro_batches)
                self._do(self._work, number, workers, timer)
                timer(WallCategory.HOST_IO, partial(self._finish, number))
                if (number + 1) % self.loop.micro_batches == 0:
                    self._do(self._after, number, workers, timer)
            timer(WallCategory.HOST_IO, self._thread.drain)
            self._steps += 1
        except BaseException:
            self._thread.settle()
            self.staging.forget()
            raise
        finally:
            self._source.feed = None

    def _begin(self, number: int) -> None:
        """Wait for the transfers that the micro-batch needs, and start those that may run during its compute."""
        self._thread.wait(self._tasks.pop(number, ()))
        if number >= self.staging.there:
            self._now(self._load, number, self.loop.loads_for(number, overlapped=False))
        stores = self.loop.stores_of(number - 1, overlapped=True)
        if stores:
            # A tensor that is stored during compute has two buffers: the micro-batch after the next one reuses this
            # buffer.
            self._tasks[number + 1].append(self._thread.put(partial(self._store, number - 1, stores), urgent=True))
        for later, loads in self.loop.coming(number, self.staging.there):
            self._tasks[later].append(self._thread.put(partial(self._load, later, loads)))
        for later in self.staging.coming(number):
            self._thread.put(partial(self.staging.stage, later, partial(self._load, later, self.loop.loads)))

    def _finish(self, number: int) -> None:
        """Run the stores that are not overlapped."""
        if not self._caller_writes:
            self._now(self._store, number, self.loop.stores_of(number, overlapped=False))
        else:
            self._store(number, self.loop.stores_of(number, overlapped=False))

    def _now(self, transfer: Callable[[int, Any], None], number: int, leaves: Sequence[HostLoad | HostStore]) -> None:
        """Transfer in the caller's thread once the background thread is idle."""
        if leaves:
            self._thread.drain()
            transfer(number, leaves)

    def _load(self, number: int, leaves: Sequence[HostLoad]) -> None:
        for leaf in leaves:
            for call in self._loads[leaf].at(self._place(number)):
                call()

    def _store(self, number: int, leaves: Sequence[HostStore]) -> None:
        self._stored.batch, self._stored.micro_batch = divmod(number, self.loop.micro_batches)
        for leaf in leaves:
            for call in self._stores[leaf].at(self._place(number)):
                call()

    def _place(self, number: int) -> int:
        """The index that selects buffers: buffers of a tensor are used in turn, across steps."""
        return self._steps * self.loop.total + number

    def _do(self, parts: Sequence[MultiBufferedCalls], number: int, workers: Workers, timer: Timer) -> None:
        for calls in parts:
            if calls.category is WallCategory.HOST_IO and not self._caller_writes:
                timer(calls.category, self._thread.drain)
            timer(calls.category, partial(workers.run, calls.at(self._place(number))))

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        parts = (*self._work, *self._after, *self._loads.values(), *self._stores.values())
        return [(part.category, call) for part in parts for call in part.at(0)]

    def close(self) -> None:
        """End the thread."""
        self._thread.close()
