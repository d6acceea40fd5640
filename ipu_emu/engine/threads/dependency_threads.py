"""Lanes: jobs of several threads that wait for each other by tokens, and for nothing else.

    lane 0   a     b ->  c          b tells lane 1, d waits for lane 0; each lane does its jobs in order
                      \
    lane 1   e        -> d

A lane that fails, or a caller that is interrupted, gives all others a token that ends them at their next wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call

__all__ = ["Job", "Lanes", "Link", "links"]

#: Makes a call and adds its time to a kind.
Clock = Callable[[Kind, Call], None]


@dataclass(frozen=True)
class Link:
    """The lanes that a job waits for, and those that wait for it: a token each."""

    waits: tuple[int, ...]
    tells: tuple[int, ...]


def links(lanes: Sequence[int], needs: Sequence[set[int]]) -> list[Link]:
    """Jobs in one order, the lane of each, and the numbers of the earlier jobs that it needs.

    A lane waits once for the last job of another that it needs, and for none that is older than what it waited for.
    """
    waits: list[list[int]] = [[] for _ in lanes]
    tells: list[list[int]] = [[] for _ in lanes]
    seen: dict[tuple[int, int], int] = {}
    for number, (lane, needed) in enumerate(zip(lanes, needs, strict=True)):
        latest = {lanes[one]: one for one in sorted(needed)}
        for other, one in latest.items():
            if other != lane and one > seen.get((other, lane), -1):
                seen[other, lane] = one
                waits[number].append(other)
                tells[one].append(lane)
    return [Link(tuple(a), tuple(b)) for a, b in zip(waits, tells, strict=True)]


@dataclass(frozen=True)
class Job:
    """What a lane does at a time."""

    call: Call
    kind: Kind
    link: Link


class _Tokens:
    """The queues of one run."""

    def __init__(self, lanes: Sequence[Sequence[Job]]) -> None:
        self.over = False
        self.queues: dict[tuple[int, int], SimpleQueue[bool]] = {
            (other, lane): SimpleQueue()
            for lane, jobs in enumerate(lanes)
            for other in {other for job in jobs for other in job.link.waits}
        }

    def wait(self, lane: int, job: Job) -> None:
        """Wait until ``lane`` may begin ``job``, or all is over."""
        for other in job.link.waits:
            self.over = not self.queues[other, lane].get() or self.over

    def tell(self, lane: int, job: Job) -> None:
        for other in job.link.tells:
            self.queues[lane, other].put(True)

    def stop(self) -> None:
        """End all lanes before their next job."""
        self.over = True
        for queue in self.queues.values():
            queue.put(False)

    def run(self, lane: int, jobs: Sequence[Job]) -> None:
        """The life of a lane."""
        try:
            for job in jobs:
                self.wait(lane, job)
                if self.over:
                    return
                job.call()
                self.tell(lane, job)
        except BaseException:
            self.stop()
            raise


class Lanes:
    """Jobs of worker threads, and those of the last lane, which runs in the caller's."""

    def __init__(self, lanes: Sequence[Sequence[Job]]) -> None:
        self.lanes = lanes

    def run(self, workers: Workers, clock: Clock) -> None:
        """Do all jobs, or raise the error of what failed first; ``clock`` calls and adds the time to a kind."""
        tokens = _Tokens(self.lanes)
        parts = [partial(tokens.run, lane, jobs) for lane, jobs in enumerate(self.lanes[:-1])]
        try:
            workers.start(parts, give_up=tokens.stop)
            for step, kind in self._own(tokens):
                clock(kind, step)
        except BaseException:
            tokens.stop()
            raise
        finally:
            clock(Kind.COMPUTE, workers.wait)

    def _own(self, tokens: _Tokens) -> Iterator[tuple[Call, Kind]]:
        lane = len(self.lanes) - 1
        for job in self.lanes[lane]:
            yield partial(tokens.wait, lane, job), Kind.COMPUTE
            if tokens.over:
                return
            yield job.call, job.kind
            tokens.tell(lane, job)
