"""Crew: the threads or processes that fill slots, and what is said when they do not.

Processes are forked, so that a data set, a generator or a lambda reaches them as it is. They leave Ctrl-C to the
session, end with it however it ends, and are killed when the feed is closed: they own nothing that could be lost.
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
from time import perf_counter_ns
from typing import Any

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.slot_filling import Filling
from ipu_emu.hostio.workers.slot_ring import Kind, Slots

__all__ = ["Crew", "Processes", "Threads", "cause_of"]

_LOOK_SECONDS = 0.2

#: By glibc's numbers: bytes from which an array is mapped, and bytes that stay at the top of the heap.
_MALLOPT = {-3: 32 << 20, -1: 256 << 20}


class Crew:
    """``count`` workers that fill the slots with steps ``0, 1, ...``."""

    def __init__(self, slots: Slots, filling: Filling, count: int) -> None:
        self.slots, self.count = slots, count
        self._work = (slots, filling)
        self._told: set[int] = set()

    def name(self, worker: int) -> str:
        """How messages call a worker."""
        return f"worker {worker}"

    def check(self) -> None:
        """Raise FeedError if a worker has died."""

    def close(self) -> None:
        """End all workers."""

    def wait(self, number: int, *, timeout: float, slow: float) -> None:
        """Wait for step ``number``; name who is slow after ``slow`` seconds, raise FeedError after ``timeout``."""
        begin = time.monotonic()
        while not self.slots.wait_ready(number, _LOOK_SECONDS):
            self.check()
            waited = time.monotonic() - begin
            if waited > timeout:
                raise FeedError(
                    f"No data for step {number} came within {timeout:g} s: {self._states()}. Look for what blocks in "
                    "the source or the preparation, or give the feed a longer timeout"
                )
            if waited > slow:
                self._tell_slow(slow)

    def _states(self) -> str:
        return "; ".join(self._state(worker) for worker in range(self.count))

    def _state(self, worker: int) -> str:
        status = self.slots.status(worker)
        if status.number < 0:
            return f"{self.name(worker)} waits for its turn at the source"
        seconds = (perf_counter_ns() - status.since) / 1e9
        return f"{self.name(worker)} has been preparing step {status.number} for {seconds:.1f} s"

    def _tell_slow(self, slow: float) -> None:
        for worker in range(self.count):
            status = self.slots.status(worker)
            if status.number >= 0 and worker not in self._told and perf_counter_ns() - status.since > slow * 1e9:
                self._told.add(worker)
                warnings.warn(f"The session waits for data: {self._state(worker)}", stacklevel=2)


class Threads(Crew):
    """Workers that share the interpreter; for preparation that is compiled or waits for files."""

    def __init__(self, slots: Slots, filling: Filling, count: int) -> None:
        super().__init__(slots, filling, count)
        self._threads = [
            threading.Thread(target=_work, args=(*self._work, worker), name=f"hostio-{worker}", daemon=True)
            for worker in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def name(self, worker: int) -> str:
        return f"worker {worker} (thread {self._threads[worker].name})"

    def close(self) -> None:
        """Ask the threads to end; one that is stuck in the user's code stays behind, and ends with the process."""
        self.slots.stop(self.count)
        for thread in self._threads:
            thread.join(1.0)


class Processes(Crew):
    """Workers with an interpreter each; for preparation in Python."""

    def __init__(self, slots: Slots, filling: Filling, count: int) -> None:
        super().__init__(slots, filling, count)
        self._owner = os.getpid()
        context: Any = multiprocessing.get_context("fork")
        self._processes = [
            context.Process(target=_process, args=(*self._work, worker), name=f"hostio-{worker}", daemon=True)
            for worker in range(count)
        ]
        with warnings.catch_warnings():
            # Later Pythons warn of threads at every fork; workers take no lock that another thread could hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            for process in self._processes:
                process.start()

    def name(self, worker: int) -> str:
        return f"worker {worker} (process {self._processes[worker].pid})"

    def check(self) -> None:
        for worker, process in enumerate(self._processes):
            if process.exitcode:
                raise FeedError(f"{self.name(worker)} {_end(process.exitcode)} {self._when(worker)}")

    def _when(self, worker: int) -> str:
        number = self.slots.status(worker).number
        return f"while it prepared step {number}" if number >= 0 else "between two steps"

    def close(self) -> None:
        """Kill the processes; a copy of this object in a forked process must not."""
        if os.getpid() != self._owner:
            return
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()


def _end(code: int) -> str:
    """How a process ended, and what that may mean."""
    if code > 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    advice = " (out of memory? see dmesg)" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}{advice})"


def _process(slots: Slots, filling: Filling, worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _keep_freed_memory()
    _work(slots, filling, worker)


def _keep_freed_memory() -> None:
    """Let glibc keep what a sample's arrays have freed for those of the next sample.

    To give pages back and fault them in again costs 30 % of the time of an image that numpy crops and normalises.
    """
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        for option, nbytes in _MALLOPT.items():
            allocator.mallopt(option, nbytes)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(2 * _LOOK_SECONDS)
    os._exit(1)


def _work(slots: Slots, filling: Filling, worker: int) -> None:
    """Fill slots until the data end, an error, or the end of the feed."""
    while _claim(slots):
        try:
            number = slots.begin(worker)
            try:
                drawn = filling.draw(number)
            finally:
                slots.unlock()
            if drawn is not None:
                filling.fill(drawn, slots.arrays[number % slots.count])
        except BaseException as error:
            slots.announce(worker, Kind.ERROR, cause_of(error))
            return
        if drawn is None:
            slots.announce(worker, Kind.END, filling.ending)
            return
        slots.announce(worker, Kind.DATA)


def _claim(slots: Slots) -> bool:
    """Wait for a free slot and for the turn at the source; False if the feed ends."""
    for wait in (slots.wait_free, slots.lock):
        while not wait(_LOOK_SECONDS):
            if slots.stopped:
                return False
    if slots.stopped:
        slots.unlock()
    return not slots.stopped


def cause_of(error: BaseException) -> str:
    """What went wrong and where, in one line: the last line of the user's own code, not the trace to it."""
    text = str(error) if isinstance(error, FeedError) else f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "ipu_emu/hostio" not in frame.filename]
    where = f" (in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return ", ".join([*getattr(error, "__notes__", []), text + where])
