"""OverlappedLoop: the loops of a step while the host exchanges the data of neighbouring micro-batches in a thread.

    caller    load 0   compute 0   compute 1          compute 2          update   store 2
    thread             load 1      store 0, load 2    store 1

The caller waits for the thread before every micro-batch, so that nothing depends on timing, and the feed is never
asked by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ipu_emu.engine.binding import Binder
from ipu_emu.engine.counts import Counts
from ipu_emu.engine.turns import TurnBinder, Turns
from ipu_emu.engine.wall import Kind
from ipu_emu.engine.workers import Workers
from ipu_emu.ops import Step
from ipu_emu.program.exchanges import Overlapped
from ipu_emu.program.instructions import HostLoad, HostStore

__all__ = ["OverlappedLoop"]

#: Makes a call and adds its time to a kind.
Clock = Callable[[Kind, Step], None]


class OverlappedLoop:
    """Loops on the memory of the replicas, and the thread beside them."""

    def __init__(self, loop: Overlapped, binder: Binder) -> None:
        self.loop, self.host = loop, binder.host
        self._counts = Counts()  # of what the host exchanges
        compute = TurnBinder(binder, [self.host.counts] * len(binder.buffers), self.host.counts)
        exchange = TurnBinder(binder, (), self._counts)
        self._work, self._after = compute.by_kind(loop.work), compute.by_kind(loop.after)
        exchanged: list[HostLoad | HostStore] = [*loop.loads, *loop.stores]
        self._exchanges = {leaf: exchange.turns(Kind.HOST_IO, [leaf]) for leaf in exchanged}
        self._aside = Workers(1, aside=True)

    def run(self, workers: Workers, clock: Clock) -> None:
        """Run all batches."""
        try:
            for number in range(self.loop.total):
                clock(Kind.HOST_IO, partial(self._begin, number))
                self.host.counts.batch, self.host.counts.micro_batch = divmod(number, self.loop.micro_batches)
                self._do(self._work, number, workers, clock)
                clock(Kind.HOST_IO, partial(self._finish, number))
                if (number + 1) % self.loop.micro_batches == 0:
                    self._do(self._after, number, workers, clock)
        finally:
            self._aside.wait()

    def _begin(self, number: int) -> None:
        """Load what has to be loaded now, and let the thread exchange what it may meanwhile."""
        self._aside.wait()
        self._exchange(number, self.loop.loads_for(number, beside=False))
        self._aside.start([partial(self._neighbours, number)])

    def _neighbours(self, number: int) -> None:
        self._exchange(number - 1, self.loop.stores_of(number - 1, beside=True))
        self._exchange(number + 1, self.loop.loads_for(number + 1, beside=True))

    def _finish(self, number: int) -> None:
        """Store what has to be stored now."""
        due = self.loop.stores_of(number, beside=False)
        if due:
            self._aside.wait()
            self._exchange(number, due)

    def _exchange(self, number: int, leaves: Sequence[HostLoad | HostStore]) -> None:
        self._counts.batch, self._counts.micro_batch = divmod(number, self.loop.micro_batches)
        for leaf in leaves:
            for call in self._exchanges[leaf].at(number):
                call()

    def _do(self, parts: Sequence[Turns], number: int, workers: Workers, clock: Clock) -> None:
        for turns in parts:
            if turns.kind is Kind.HOST_IO:
                clock(turns.kind, self._aside.wait)
            clock(turns.kind, partial(workers.run, turns.at(number)))

    def calls(self) -> list[tuple[Kind, Step]]:
        """One of each of the prepared calls."""
        turns = (*self._work, *self._after, *self._exchanges.values())
        return [(one.kind, call) for one in turns for call in one.at(0)]

    def close(self) -> None:
        """End the thread."""
        self._aside.close()
