"""Worker pool: the threads or processes that fill slots, and the errors and warnings if they fail or are slow.

Processes are forked, so a data set, a generator or a lambda reaches them unchanged. They ignore Ctrl-C, which the
session handles, end when the session ends, however it ends, and are killed when the feed is closed: they hold nothing
that could be lost.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.slot_fillers import SlotFiller
from ipu_emu.hostio.workers.slot_ring import SlotContent, SlotRing
from popdist_py import trace

_POLL_SECONDS = 0.2

#: The folder of this package: its frames are not user code.
_HOSTIO = str(Path(__file__).parents[1]) + os.sep

#: glibc's M_MMAP_THRESHOLD (-3) and M_TRIM_THRESHOLD (-1), in bytes.
_MALLOPT = {-3: 32 << 20, -1: 256 << 20}


class WorkerPool:
    """Base of both kinds of workers: ``count`` of them fill the slots with steps ``0, 1, ...``."""

    def __init__(self, slots: SlotRing, filler: SlotFiller, count: int) -> None:
        self.slots, self.count = slots, count
        self._work_arguments = (slots, filler)
        self._warned: set[int] = set()

    def name(self, worker: int) -> str:
        """Return the name of a worker in messages."""
        return f"worker {worker}"

    def check(self) -> None:
        """Raise FeedError if a worker has died."""

    def close(self) -> None:
        """Stop all workers."""

    def wait(self, number: int, *, timeout: float, slow: float) -> None:
        """Wait for step ``number``; warn of slow workers after ``slow`` seconds; raise FeedError at ``timeout``."""
        begin = time.monotonic()
        while not self.slots.wait_ready(number, _POLL_SECONDS):
            self.check()
            waited = time.monotonic() - begin
            if waited > timeout:
                raise FeedError(
                    f"No data for step {number} arrived within {timeout:g} s: {self._states()}. Check what blocks in "
                    "the source or the preparation, or give the feed a longer timeout"
                )
            if waited > slow:
                self._warn_slow(slow)

    def _states(self) -> str:
        return "; ".join(self._state(worker) for worker in range(self.count))

    def _state(self, worker: int) -> str:
        status = self.slots.status(worker)
        if status.number < 0:
            return f"{self.name(worker)} waits for its turn at the source"
        seconds = (perf_counter_ns() - status.since) / 1e9
        return f"{self.name(worker)} has been preparing step {status.number} for {seconds:.1f} s"

    def _warn_slow(self, slow: float) -> None:
        for worker in range(self.count):
            status = self.slots.status(worker)
            if status.number >= 0 and worker not in self._warned and perf_counter_ns() - status.since > slow * 1e9:
                self._warned.add(worker)
                warnings.warn(f"The session waits for data: {self._state(worker)}", stacklevel=2)


class WorkerThreads(WorkerPool):
    """Worker threads; for preparation that is compiled or waits for files."""

    def __init__(self, slots: SlotRing, filler: SlotFiller, count: int) -> None:
        super().__init__(slots, filler, count)
        self._threads = [
            threading.Thread(target=_work, args=(*self._work_arguments, worker), name=f"hostio-{worker}", daemon=True)
            for worker in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def name(self, worker: int) -> str:
        return f"worker {worker} (thread {self._threads[worker].name})"

    def close(self) -> None:
        """Stop the threads; one that is stuck in user code remains until the process ends."""
        self.slots.stop(self.count)
        for thread in self._threads:
            thread.join(1.0)


class WorkerProcesses(WorkerPool):
    """Worker processes, each with its own interpreter; for preparation in Python."""

    def __init__(self, slots: SlotRing, filler: SlotFiller, count: int) -> None:
        super().__init__(slots, filler, count)
        self._owner = os.getpid()
        context: Any = multiprocessing.get_context("fork")
        self._processes = [
            context.Process(
                target=_process, args=(*self._work_arguments, worker), name=f"hostio-{worker}", daemon=True
            )
            for worker in range(count)
        ]
        with warnings.catch_warnings():
            # Newer Pythons warn when a process with threads forks; workers take no lock that another thread may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            for process in self._processes:
                process.start()

    def name(self, worker: int) -> str:
        return f"worker {worker} (process {self._processes[worker].pid})"

    def check(self) -> None:
        for worker, process in enumerate(self._processes):
            if process.exitcode:
                raise FeedError(f"{self.name(worker)} {_exit_text(process.exitcode)} {self._when(worker)}")

    def _when(self, worker: int) -> str:
        number = self.slots.status(worker).number
        return f"while it prepared step {number}" if number >= 0 else "between two steps"

    def close(self) -> None:
        """Kill the processes, unless this is a copy of the pool in a forked process."""
        if os.getpid() != self._owner:
            return
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()


def _exit_text(code: int) -> str:
    """Return how a process ended, and a likely reason."""
    if code > 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    advice = " (out of memory? see dmesg)" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}{advice})"


def _process(slots: SlotRing, filler: SlotFiller, worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    _keep_freed_memory()
    _work(slots, filler, worker)


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory for the arrays of the next sample.

    Returning pages and faulting them in again costs 30 % of the time that numpy needs to crop and normalise an image.
    """
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        for option, nbytes in _MALLOPT.items():
            allocator.mallopt(option, nbytes)


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(2 * _POLL_SECONDS)
    os._exit(1)


def _work(slots: SlotRing, filler: SlotFiller, worker: int) -> None:
    """Fill slots until the data end, an error occurs, or the feed is closed."""
    while _claim(slots):
        try:
            number = slots.begin(worker)
            try:
                drawn = filler.draw(number)
            finally:
                slots.unlock()
            if drawn is not None:
                with trace.span("prepare data", trace.Category.DATA):
                    filler.fill(drawn, slots.arrays[number % slots.count])
        except BaseException as error:
            slots.publish(worker, SlotContent.ERROR, cause_of(error))
            return
        if drawn is None:
            slots.publish(worker, SlotContent.END, filler.ending)
            return
        slots.publish(worker, SlotContent.DATA)


def _claim(slots: SlotRing) -> bool:
    """Wait for a free slot and for access to the source; return False if the feed is closed."""
    for wait in (slots.wait_free, slots.lock):
        while not wait(_POLL_SECONDS):
            if slots.stopped:
                return False
    if slots.stopped:
        slots.unlock()
    return not slots.stopped


def cause_of(error: BaseException) -> str:
    """Return an error and the last line of user code in its traceback, in one line."""
    text = str(error) if isinstance(error, FeedError) else f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_HOSTIO)]
    where = f" (in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return ", ".join([*getattr(error, "__notes__", []), text + where])
