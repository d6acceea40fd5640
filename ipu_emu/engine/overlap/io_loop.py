"""OverlappedLoop: the loops of a step while the host exchanges the data of other micro-batches in a thread.

    caller    load 0   compute 0   compute 1          compute 2          update   store 2
    thread             load 1      store 0, load 2    store 1

The caller waits for what a micro-batch needs, so that nothing depends on timing. Inputs are asked for by one thread
at a time, and so are outputs. Staged inputs (see ``staging``) are loaded further ahead, also those of the next step;
then the caller may give outputs while the thread waits for inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from ipu_emu.engine.calls.instruction_calls import Binder, Host
from ipu_emu.engine.calls.multi_buffered_calls import TurnBinder, Turns
from ipu_emu.engine.calls.step_counters import Counts
from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.engine.overlap.staged_inputs import Staging
from ipu_emu.engine.threads.background_thread import Aside, Job
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call
from ipu_emu.program.io_overlap import Overlap
from ipu_emu.program.leaf_instructions import HostLoad, HostStore
from ipu_emu.program.overlapped_loops import Overlapped

__all__ = ["OverlappedLoop"]

#: Makes a call and adds its time to a kind.
Clock = Callable[[Kind, Call], None]


class OverlappedLoop:
    """Loops on the memory of the replicas, and the thread beside them."""

    def __init__(self, loop: Overlapped, binder: Binder) -> None:
        self.loop, self.host = loop, binder.host
        self._counts = Counts()  # of what the host takes
        self._source = Host()
        self._steps = 0
        compute = TurnBinder(binder, [self.host.counts] * len(binder.buffers), self.host.counts)
        taken = TurnBinder(binder, (), self._counts)
        asking = copy(binder)
        asking.host = self._source
        given = TurnBinder(asking, (), Counts())
        self._work, self._after = compute.by_kind(loop.work), compute.by_kind(loop.after)
        self._loads = {leaf: given.turns(Kind.HOST_IO, [leaf]) for leaf in loop.loads}
        self._stores = {leaf: taken.turns(Kind.HOST_IO, [leaf]) for leaf in loop.stores}
        #: Whether only the caller gives outputs, and may do so at any time.
        self._apart = loop.staged and all(leaf.overlap is Overlap.NONE for leaf in loop.stores)
        self._aside = Aside("host-io-0")
        self._jobs: dict[int, list[Job]] = {}  # by the micro-batch that has to wait for them
        self._staging = Staging(loop, self._source, len(binder.buffers))

    def run(self, workers: Workers, clock: Clock) -> None:
        """Run all batches."""
        self._jobs = defaultdict(list)
        self._source.feed = self.host.feed
        self._staging.begin()
        try:
            for number in range(self.loop.total):
                clock(Kind.HOST_IO, partial(self._begin, number))
                self.host.counts.batch, self.host.counts.micro_batch = divmod(number, self.loop.micro_batches)
                self._do(self._work, number, workers, clock)
                clock(Kind.HOST_IO, partial(self._finish, number))
                if (number + 1) % self.loop.micro_batches == 0:
                    self._do(self._after, number, workers, clock)
            clock(Kind.HOST_IO, self._aside.drain)
            self._steps += 1
        except BaseException:
            self._aside.settle()
            self._staging.forget()
            raise
        finally:
            self._source.feed = None

    def _begin(self, number: int) -> None:
        """See that what the micro-batch needs is there, and let the thread exchange what it may meanwhile."""
        self._aside.wait(self._jobs.pop(number, ()))
        if number >= self._staging.there:
            self._now(self._load, number, self.loop.loads_for(number, beside=False))
        stores = self.loop.stores_of(number - 1, beside=True)
        if stores:
            # A tensor that is stored has two places: the next but one micro-batch needs this one.
            self._jobs[number + 1].append(self._aside.put(partial(self._store, number - 1, stores), urgent=True))
        for later, loads in self.loop.coming(number, self._staging.there):
            self._jobs[later].append(self._aside.put(partial(self._load, later, loads)))
        for later in self._staging.coming(number):
            self._aside.put(partial(self._staging.stage, later, partial(self._load, later, self.loop.loads)))

    def _finish(self, number: int) -> None:
        """Store what has to be stored now."""
        if not self._apart:
            self._now(self._store, number, self.loop.stores_of(number, beside=False))
        else:
            self._store(number, self.loop.stores_of(number, beside=False))

    def _now(self, exchange: Callable[[int, Any], None], number: int, leaves: Sequence[HostLoad | HostStore]) -> None:
        """Exchange in the caller's thread, once the other one has nothing left to do."""
        if leaves:
            self._aside.drain()
            exchange(number, leaves)

    def _load(self, number: int, leaves: Sequence[HostLoad]) -> None:
        for leaf in leaves:
            for call in self._loads[leaf].at(self._turn(number)):
                call()

    def _store(self, number: int, leaves: Sequence[HostStore]) -> None:
        self._counts.batch, self._counts.micro_batch = divmod(number, self.loop.micro_batches)
        for leaf in leaves:
            for call in self._stores[leaf].at(self._turn(number)):
                call()

    def _turn(self, number: int) -> int:
        """A tensor's places are taken in turn across steps."""
        return self._steps * self.loop.total + number

    def _do(self, parts: Sequence[Turns], number: int, workers: Workers, clock: Clock) -> None:
        for turns in parts:
            if turns.kind is Kind.HOST_IO and not self._apart:
                clock(turns.kind, self._aside.drain)
            clock(turns.kind, partial(workers.run, turns.at(self._turn(number))))

    def calls(self) -> list[tuple[Kind, Call]]:
        """One of each of the prepared calls."""
        turns = (*self._work, *self._after, *self._loads.values(), *self._stores.values())
        return [(one.kind, call) for one in turns for call in one.at(0)]

    def close(self) -> None:
        """End the thread."""
        self._aside.close()
