"""DependencyThreads: threads whose tasks wait for tasks of other threads, by tokens.

    thread 0   a   b   c        each thread runs its tasks in order
                   |
    thread 1   e   '-> d        b sends a token to thread 1, where d waits for it

A thread that fails, or a caller that is interrupted, sends all others a token that ends them at their next wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ipu_emu.engine.calls.wall_time import Timer, WallCategory
from ipu_emu.engine.threads.token_queue import TokenQueue
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call

__all__ = ["Dependency", "DependencyThreads", "ThreadTask", "dependencies"]


@dataclass(frozen=True)
class Dependency:
    """The threads for which a task waits, and those that wait for it, with one token each."""

    waits: tuple[int, ...]
    signals: tuple[int, ...]


def dependencies(threads: Sequence[int], needs: Sequence[set[int]]) -> list[Dependency]:
    """The tokens of tasks, given the thread of each and the numbers of the earlier tasks that it needs.

    A thread waits once for the last task that it needs from another thread, never for one before a task for which it
    has waited already.
    """
    waits: list[list[int]] = [[] for _ in threads]
    signals: list[list[int]] = [[] for _ in threads]
    seen: dict[tuple[int, int], int] = {}
    for number, (thread, needed) in enumerate(zip(threads, needs, strict=True)):
        latest = {threads[task]: task for task in sorted(needed)}
        for other, task in latest.items():
            if other != thread and task > seen.get((other, thread), -1):
                seen[other, thread] = task
                waits[number].append(other)
                signals[task].append(thread)
    return [Dependency(tuple(a), tuple(b)) for a, b in zip(waits, signals, strict=True)]


@dataclass(frozen=True)
class ThreadTask:
    """The tasks that a thread runs between two waits."""

    call: Call
    category: WallCategory
    dependency: Dependency


class _Tokens:
    """The queues of one run."""

    def __init__(self, threads: Sequence[Sequence[ThreadTask]]) -> None:
        self.over = False
        caller = len(threads) - 1  # has no core of its own
        self.queues = {
            (other, thread): TokenQueue(looks=caller not in (other, thread))
            for thread, tasks in enumerate(threads)
            for other in {other for task in tasks for other in task.dependency.waits}
        }

    def wait(self, thread: int, task: ThreadTask) -> None:
        """Wait until ``thread`` may begin ``task``, or the run is over."""
        for other in task.dependency.waits:
            token = self.queues[other, thread].get()
            self.over = not token or self.over

    def signal(self, thread: int, task: ThreadTask) -> None:
        for other in task.dependency.signals:
            self.queues[thread, other].put(True)

    def stop(self) -> None:
        """End all threads before their next task."""
        self.over = True
        for queue in self.queues.values():
            queue.put(False)

    def run(self, thread: int, tasks: Sequence[ThreadTask]) -> None:
        """The tasks of a thread."""
        try:
            for task in tasks:
                self.wait(thread, task)
                if self.over:
                    return
                task.call()
                self.signal(thread, task)
        except BaseException:
            self.stop()
            raise


class DependencyThreads:
    """The tasks of worker threads, and last those of the caller's thread."""

    def __init__(self, threads: Sequence[Sequence[ThreadTask]]) -> None:
        self.threads = threads

    def run(self, workers: Workers, timer: Timer) -> None:
        """Run all tasks, or raise the error of the first that failed; ``timer`` runs the caller's calls."""
        tokens = _Tokens(self.threads)
        parts = [partial(tokens.run, thread, tasks) for thread, tasks in enumerate(self.threads[:-1])]
        try:
            workers.start(parts, give_up=tokens.stop)
            for step, category in self._own(tokens):
                timer(category, step)
        except BaseException:
            tokens.stop()
            raise
        finally:
            timer(WallCategory.COMPUTE, workers.wait)

    def _own(self, tokens: _Tokens) -> Iterator[tuple[Call, WallCategory]]:
        thread = len(self.threads) - 1
        for task in self.threads[thread]:
            yield partial(tokens.wait, thread, task), WallCategory.COMPUTE
            if tokens.over:
                return
            yield task.call, task.category
            tokens.signal(thread, task)
