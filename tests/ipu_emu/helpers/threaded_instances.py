"""Threaded instances: the instances of one job as threads of this process, each with its own session."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Lock
from typing import Any, TypeVar
from unittest.mock import patch

import gcl
from ipu_emu import popart
from ipu_emu.engine import Replicas
from ipu_emu.hardware import Device, DeviceKind
from ipu_emu.session import loaded_program

__all__ = ["Instance", "on_instances", "session_on"]

R = TypeVar("R")


class Instance:
    """One instance: its local replicas, and its connection to the others."""

    def __init__(self, job: _Job, index: int) -> None:
        self._job, self.index = job, index
        self.local, self.offset, self.total = job.counts[index], sum(job.counts[:index]), sum(job.counts)

    def replicas(self) -> Replicas:
        return Replicas(local=self.local, offset=self.offset, total=self.total, connect=self.connect)

    def connect(self, group: gcl.Group | None) -> gcl.Communicator:
        return self._job.communicators(group)[self.index]

    def configure(self, opts: popart.SessionOptions) -> popart.SessionOptions:
        """Set the options that popdist.popart.configureSessionOptions sets."""
        opts.enableReplicatedGraphs, opts.replicatedGraphCount = self.local > 1, self.local
        opts.enableDistributedReplicatedGraphs = self.total > self.local
        opts.globalReplicationFactor, opts.globalReplicaOffset = self.total, self.offset
        return opts


#: The instance that a thread is.
_OF_THREAD: ContextVar[Instance | None] = ContextVar("instance", default=None)


def _replicas(*, local: int, offset: int, total: int) -> Replicas:
    """The replicas of a session, whose collectives join the threads if they are those of the thread's instance."""
    instance = _OF_THREAD.get()
    if instance and (local, offset, total) == (instance.local, instance.offset, instance.total):
        return instance.replicas()
    return Replicas(local=local, offset=offset, total=total)


class _Job:
    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self._made: dict[gcl.Group | None, list[gcl.Communicator]] = {}
        self._lock = Lock()

    def communicators(self, group: gcl.Group | None) -> list[gcl.Communicator]:
        with self._lock:
            if group not in self._made:
                self._made[group] = gcl.connect_threads(self.counts, group=group, timeout=250, segment_bytes=1 << 26)
            return self._made[group]


def on_instances(counts: tuple[int, ...], work: Callable[[Instance], R]) -> list[R]:
    """Run ``work`` on instances with ``counts[i]`` local replicas, all at the same time.

    Of several errors the earliest is raised: the others only report that they wait for the failed instance.
    """
    job, errors = _Job(counts), list[BaseException]()

    def run(index: int) -> R:
        instance = Instance(job, index)
        _OF_THREAD.set(instance)
        try:
            return work(instance)
        except BaseException as error:
            errors.append(error)
            raise

    with patch.object(loaded_program, "Replicas", _replicas), ThreadPoolExecutor(len(counts)) as pool:
        futures = [pool.submit(run, index) for index in range(len(counts))]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]


def session_on(instance: Instance, kind: type[Any], *args: Any, **named: Any) -> Any:
    """A session whose device is an IPU for every local replica of an instance."""
    device = Device(DeviceKind.IPU, 0, instance.local, 1472, "ipu2")
    return kind(*args, deviceInfo=popart.DeviceInfo(device), **named)
