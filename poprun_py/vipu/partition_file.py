"""Partition file: the file of a user's emulated V-IPU partitions, and its lock.

``$XDG_STATE_HOME/poprun-py/partitions.json`` (~/.local/state without the variable), in a folder of the user's own.
It is written under a lock, and replaced by a rename; a damaged file is reported and replaced. Where several hosts
share a home directory, jobs on other hosts count as running, since that cannot be checked from here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from popdist_py.files.atomic_write import replace_file
from popdist_py.files.bounded_read import open_regular
from poprun_py.errors import PoprunError, VipuBusyError
from poprun_py.linux.processes import start_ticks
from poprun_py.vipu.partition import Partition, PartitionAssignment, PartitionRequest, PartitionUser, assign_partition

#: Seconds between two attempts to take a lock, or a partition, that others hold.
_PAUSE = 0.02
_PAUSE_BETWEEN_ATTEMPTS = 1.0

#: Far more than any user's partitions need.
_MOST_BYTES = 1 << 22


def partition_file(environ: Mapping[str, str], warn: Callable[[str], None]) -> PartitionFile:
    """Return the file of this user; ``warn`` is called if it is damaged and has to be replaced.

    Raise PoprunError for a user without a home.
    """
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    if state.startswith("~"):
        raise PoprunError("there is no folder for V-IPU partitions, as this user has no home; set XDG_STATE_HOME")
    return PartitionFile(os.path.join(state, "poprun-py", "partitions.json"), warn)


@dataclass(frozen=True)
class PartitionFile:
    """Assigns partitions and records their users; users whose process is gone are ignored."""

    path: str
    warn: Callable[[str], None]

    def preview(self, request: PartitionRequest) -> PartitionAssignment:
        """Return the assignment that ``held`` would make; nothing is locked or written."""
        return assign_partition(request, _with_running_users(self.read()))

    @contextmanager
    def held(self, request: PartitionRequest) -> Iterator[PartitionAssignment]:
        """Hold the partition while the block runs; then remove it if it was created for jobs and is idle."""
        me = PartitionUser(os.getpid(), start_ticks(os.getpid()), os.uname().nodename)
        assignment = self._attempt(request, me)
        try:
            yield assignment
        finally:
            self._leave(assignment.partition, request, me)

    def _attempt(self, request: PartitionRequest, me: PartitionUser) -> PartitionAssignment:
        for attempt in range(request.attempts, 0, -1):
            try:
                return self._enter(request, me)
            except VipuBusyError:
                if attempt == 1:
                    raise
                time.sleep(_PAUSE_BETWEEN_ATTEMPTS)
        raise AssertionError("at least one attempt is made")

    def _enter(self, request: PartitionRequest, me: PartitionUser) -> PartitionAssignment:
        with self._locked(request):
            partitions = _with_running_users(self.read())
            assignment = assign_partition(request, partitions)
            mine = replace(assignment.partition, jobs=(*assignment.partition.jobs, me))
            self.write([*(entry for entry in partitions if not _same(entry, mine)), mine])
        return assignment

    def _leave(self, partition: Partition, request: PartitionRequest, me: PartitionUser) -> None:
        with self._locked(request):
            left = []
            for entry in self.read():
                if _same(entry, partition):
                    entry = replace(entry, jobs=tuple(job for job in entry.jobs if job != me))
                left.append(entry)
            self.write(_with_running_users(left))

    @contextmanager
    def _locked(self, request: PartitionRequest) -> Iterator[None]:
        """Hold the lock; wait for it for at most --vipu-server-timeout seconds."""
        from filelock import FileLock, Timeout  # most launches have no partition

        lock = FileLock(
            f"{self.path}.lock", request.server.timeout, mode=0o600, poll_interval=_PAUSE, fallback_to_soft=False
        )
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise VipuBusyError(
                f"the V-IPU server {request.server.address} did not answer within {request.server.timeout:g} "
                f"s: another process holds {self.path}.lock; end it or raise --vipu-server-timeout"
            ) from None
        except OSError as error:
            raise self._unusable(error) from None
        try:
            yield
        finally:
            lock.release()

    def read(self) -> list[Partition]:
        """Return the partitions of the file; none if it is missing or damaged."""
        try:
            descriptor = open_regular(self.path)
            with open(descriptor, "rb") as stream:
                data = stream.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        try:
            return [_partition(entry) for entry in json.loads(data)["partitions"]]
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self.warn(f"{self.path} is damaged or from another program; it is replaced, and its partitions are lost")
            return []

    def write(self, partitions: list[Partition]) -> None:
        """Replace the partitions of the file, whose lock the caller holds."""
        text = json.dumps({"partitions": [asdict(partition) for partition in partitions]}, indent=1)
        try:
            replace_file(self.path, text.encode(), sync=True, mode=0o600)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> PoprunError:
        return PoprunError(
            f"the V-IPU partitions in {self.path} cannot be used: {error.strerror}; set XDG_STATE_HOME to a writable "
            "folder"
        )


def _partition(entry: dict[str, Any]) -> Partition:
    """Read one partition of the file; raise ValueError, TypeError or KeyError if it is malformed."""
    jobs = tuple(PartitionUser(int(job["pid"]), int(job["started"]), str(job["host"])) for job in entry["jobs"])
    allocation = None if entry["allocation"] is None else str(entry["allocation"])
    name, server, ipus = str(entry["name"]), str(entry["server"]), int(entry["ipus"])
    if not name or ipus < 1:
        raise ValueError("a partition needs a name and at least 1 IPU")
    return Partition(name, server, ipus, allocation, bool(entry["removable"]), int(entry["resets"]), jobs)


def _with_running_users(partitions: list[Partition]) -> list[Partition]:
    """Without users whose launcher is gone, and partitions that should have been removed with them."""
    alive = [replace(partition, jobs=tuple(filter(_is_alive, partition.jobs))) for partition in partitions]
    return [partition for partition in alive if partition.jobs or not partition.removable]


def _is_alive(job: PartitionUser) -> bool:
    return job.host != os.uname().nodename or start_ticks(job.pid) == job.started


def _same(partition: Partition, other: Partition) -> bool:
    return (partition.server, partition.name) == (other.server, other.name)
