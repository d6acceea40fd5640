"""Occupancy: which IPUs of the emulated system are in use, and by which device.

A real Pod belongs to its host; the emulated one belongs to the user: all device managers see the same IPUs, in one
process or in several (see ipu_locks.py). A holder releases its IPUs explicitly, or when it is garbage-collected. A
job of the launcher has its own Pod, which is divided among its instances by their replicas.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache
from threading import Lock
from weakref import WeakKeyDictionary, finalize

from ipu_emu.hardware.ipu_locks import ALONE, Claims, claims_folder
from ipu_emu.hardware.system import System
from popdist_py.environment import JOB, Environment, is_set


class Occupancy:
    """The IPUs that each holder has; with ``claims`` they are locked against other processes."""

    def __init__(self, claims: Claims | None = None) -> None:
        self._held: WeakKeyDictionary[object, frozenset[int]] = WeakKeyDictionary()
        self._claims = claims or Claims(None)
        self._forgotten: deque[frozenset[int]] = deque()
        self._lock = Lock()

    def take(self, holder: object, ipus: Iterable[int]) -> bool:
        """Give ``ipus`` to ``holder`` if all are free; return whether that succeeded."""
        wanted = frozenset(ipus)
        if not self._try(holder, wanted):
            gc.collect()  # unreferenced sessions may still hold devices
            return self._try(holder, wanted)
        return True

    def _try(self, holder: object, wanted: frozenset[int]) -> bool:
        with self._lock:
            self._sweep()
            if any(wanted & held for other, held in self._held.items() if other is not holder):
                return False
            before = self._held.get(holder, frozenset())
            if not self._claims.take(sorted(wanted - before)):
                return False
            self._claims.release(before - wanted)
            self._held[holder] = wanted
            finalize(holder, self._forget, wanted).atexit = False
            return True

    def release(self, holder: object) -> None:
        """Release all IPUs of ``holder``."""
        with self._lock:
            self._claims.release(self._held.pop(holder, frozenset()))

    def is_free(self, ipus: Iterable[int]) -> bool:
        """Whether all of ``ipus`` are free."""
        return not any(self.holder(ipu) is not None for ipu in ipus)

    def holder(self, ipu: int) -> int | None:
        """Return the pid of the process that has an IPU, 0 if it is in another pid namespace; None if it is free."""
        with self._lock:
            here = any(ipu in held for held in self._held.values())
        return os.getpid() if here else self._claims.holder(ipu)

    def _forget(self, ipus: frozenset[int]) -> None:
        """Release the IPUs of a holder that was garbage-collected; may be called while this thread has the lock."""
        self._forgotten.append(ipus)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._forgotten:
            self._claims.release(self._forgotten.popleft().difference(*self._held.values()))


def of_this_process(system: System, environ: Mapping[str, str]) -> Occupancy:
    """Return the occupancy of the system of this process."""
    job = job_of(environ)
    return _occupancy(system, None if job is None else claims_folder(environ), job or ALONE)


def job_of(environ: Mapping[str, str]) -> int | None:
    """Return the number of the job of this process, ALONE for none; None if the job has no number."""
    number = environ.get(JOB, "")
    return int(number) if number.isdecimal() else None if is_set(environ) else ALONE


@cache  # permanent: a second Occupancy of the same IPUs would not know their holders
def _occupancy(system: System, folder: str | None, job: int) -> Occupancy:
    """The occupancy of a system, one per process: all device managers of a process compete for its IPUs."""
    return Occupancy(None if folder is None else Claims.on(system, folder, job))


def share_of(system: System, environ: Mapping[str, str]) -> range:
    """Return the IPUs of this process: the device of its replicas in a job of the launcher, else all."""
    if not is_set(environ):
        return range(system.ipus)
    job = Environment.from_environ(environ)
    local = job.num_local_replicas
    width = 1 << (local * job.num_ipus_per_replica - 1).bit_length()
    first = job.replica_index_offset * width // local
    return range(first, first + width)
