"""BackgroundThread: a thread that runs tasks in order, urgent ones first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition, Thread
from weakref import finalize

import numpy as np

from ipu_emu.ops import Call


@dataclass(eq=False)
class BackgroundTask:
    """A call, and whether it is done or cancelled."""

    call: Call
    done: bool = False


class _Shared:
    """The state shared with the thread, which refers to nothing else, so that its owner can be garbage collected."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.urgent: deque[BackgroundTask] = deque()
        self.ordinary: deque[BackgroundTask] = deque()
        self.running: BackgroundTask | None = None
        self.error: BaseException | None = None
        self.ended = False

    @property
    def idle(self) -> bool:
        return self.running is None and not self.urgent and not self.ordinary


class BackgroundThread:
    """One caller adds tasks and waits for them; if a task fails, all later ones are cancelled."""

    def __init__(self, name: str) -> None:
        self._shared = shared = _Shared()
        self._thread = Thread(target=_work, args=(shared,), name=name, daemon=True)
        self._thread.start()
        self._stop = finalize(self, _stop, shared)

    def put(self, call: Call, *, urgent: bool = False) -> BackgroundTask:
        """Queue ``call`` for the thread."""
        task = BackgroundTask(call)
        with self._shared.changed:
            (self._shared.urgent if urgent else self._shared.ordinary).append(task)
            self._shared.changed.notify_all()
        return task

    def wait(self, tasks: Iterable[BackgroundTask]) -> None:
        """Wait for ``tasks``; raise the error of the first task that failed."""
        shared = self._shared
        with shared.changed:
            wanted = list(tasks)
            shared.changed.wait_for(lambda: all(task.done for task in wanted))
            self._raise()

    def drain(self) -> None:
        """Wait until no task is left; raise the error of the first task that failed."""
        with self._shared.changed:
            self._shared.changed.wait_for(lambda: self._shared.idle)
            self._raise()

    def settle(self) -> None:
        """Cancel the tasks that have not started, wait for the one that has, and discard errors."""
        shared = self._shared
        with shared.changed:
            _give_up(shared)
            shared.changed.wait_for(lambda: shared.idle)
            shared.error = None

    def _raise(self) -> None:
        error, self._shared.error = self._shared.error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread."""
        self._stop()
        self._thread.join()


def _work(shared: _Shared) -> None:
    """The loop of the thread; it sets numpy's error state, which is per thread and not inherited from the caller."""
    np.seterr(all="ignore")
    while True:
        with shared.changed:
            shared.changed.wait_for(lambda: shared.urgent or shared.ordinary or shared.ended)
            if shared.ended:
                return
            task = shared.running = (shared.urgent or shared.ordinary).popleft()
        error: BaseException | None = None
        try:
            task.call()
        except BaseException as raised:
            error = raised
        with shared.changed:
            task.done, shared.running = True, None
            if error is not None:
                shared.error = shared.error or error
                _give_up(shared)
            shared.changed.notify_all()
        del task, error


def _give_up(shared: _Shared) -> None:
    for tasks in (shared.urgent, shared.ordinary):
        for task in tasks:
            task.done = True
        tasks.clear()


def _stop(shared: _Shared) -> None:
    with shared.changed:
        shared.ended = True
        shared.changed.notify_all()
