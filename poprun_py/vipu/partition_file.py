"""Partitions: the file in which a user's emulated V-IPU partitions stand, and the turn that a job takes in it.

``$XDG_STATE_HOME/poprun-py/partitions.json`` (~/.local/state without the variable), in a folder of the user's own.
It is only written under a lock, whole, by a rename; one that is torn all the same is said and replaced. Where several
hosts share a home, the jobs of other hosts are taken for alive: nobody here can tell.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from popdist_py.atomic_write import replace_file
from poprun_py.errors import PoprunError, VipuBusyError
from poprun_py.vipu.partition import Decision, Job, Partition, Request, decide

__all__ = ["PartitionFile", "partition_file", "started"]

#: Seconds between two looks at a lock or a partition that others hold.
_PAUSE = 0.02
_PAUSE_BETWEEN_ATTEMPTS = 1.0

#: Far more than any user's partitions need.
_MOST_BYTES = 1 << 22


def partition_file(environ: Mapping[str, str], warn: Callable[[str], None]) -> PartitionFile:
    """The file of this user; ``warn`` is told when it has to be replaced."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return PartitionFile(os.path.join(state, "poprun-py", "partitions.json"), warn)


@dataclass(frozen=True)
class PartitionFile:
    """Reads, decides and writes; processes that are gone do not count."""

    path: str
    warn: Callable[[str], None]

    def look(self, wanted: Request) -> Decision:
        """What would happen, without a lock and without a trace."""
        return decide(wanted, _living(self._read()))

    @contextmanager
    def held(self, wanted: Request) -> Iterator[Decision]:
        """Have the partition while the block runs; afterwards it goes, if it was made for the job and is idle."""
        me = Job(os.getpid(), started(os.getpid()), os.uname().nodename)
        decision = self._attempt(wanted, me)
        try:
            yield decision
        finally:
            self._leave(decision.partition, wanted, me)

    def _attempt(self, wanted: Request, me: Job) -> Decision:
        for attempt in range(wanted.attempts, 0, -1):
            try:
                return self._enter(wanted, me)
            except VipuBusyError:
                if attempt == 1:
                    raise
                time.sleep(_PAUSE_BETWEEN_ATTEMPTS)
        raise AssertionError("at least one attempt is made")

    def _enter(self, wanted: Request, me: Job) -> Decision:
        with self._locked(wanted):
            partitions = _living(self._read())
            decision = decide(wanted, partitions)
            mine = replace(decision.partition, jobs=(*decision.partition.jobs, me))
            self._write([*_without(mine, partitions), mine])
        return decision

    def _leave(self, partition: Partition, wanted: Request, me: Job) -> None:
        with self._locked(wanted):
            left = []
            for one in self._read():
                if _same(one, partition):
                    one = replace(one, jobs=tuple(job for job in one.jobs if job != me))
                left.append(one)
            self._write(_living(left))

    @contextmanager
    def _locked(self, wanted: Request) -> Iterator[None]:
        """Wait for the turn, as long as --vipu-server-timeout says."""
        from filelock import FileLock, Timeout  # most launches have no partition

        lock = FileLock(
            f"{self.path}.lock", wanted.server.timeout, mode=0o600, poll_interval=_PAUSE, fallback_to_soft=False
        )
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise VipuBusyError(
                f"the V-IPU server {wanted.server.address} did not answer within {wanted.server.timeout:g} "
                f"s: another process holds {self.path}.lock; end it or raise --vipu-server-timeout"
            ) from None
        except OSError as error:
            raise self._unusable(error) from None
        try:
            yield
        finally:
            lock.release()

    def _read(self) -> list[Partition]:
        try:
            with open(self.path, "rb") as stream:
                data = stream.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        try:
            return [_partition(entry) for entry in json.loads(data)["partitions"]]
        except (ValueError, TypeError, KeyError, AttributeError):
            self.warn(
                f"{self.path} is torn or was written by another program; it is replaced, its partitions are lost"
            )
            return []

    def _write(self, partitions: list[Partition]) -> None:
        text = json.dumps({"partitions": [asdict(partition) for partition in partitions]}, indent=1)
        try:
            replace_file(self.path, text.encode(), sync=True, owner_only=True)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> PoprunError:
        return PoprunError(
            f"the V-IPU partitions in {self.path} cannot be used: {error.strerror}; set XDG_STATE_HOME to a folder "
            "that you may write to"
        )


def _partition(entry: dict[str, Any]) -> Partition:
    """Check what the file says of a partition; raise one of the errors that tell a torn file."""
    jobs = tuple(Job(int(job["pid"]), int(job["started"]), str(job["host"])) for job in entry["jobs"])
    allocation = None if entry["allocation"] is None else str(entry["allocation"])
    name, server, ipus = str(entry["name"]), str(entry["server"]), int(entry["ipus"])
    if not name or ipus < 1:
        raise ValueError("no partition looks like this")
    return Partition(name, server, ipus, allocation, bool(entry["removable"]), int(entry["resets"]), jobs)


def _living(partitions: list[Partition]) -> list[Partition]:
    """Without jobs whose launcher is gone, and without the partitions that should have gone with them."""
    alive = [replace(one, jobs=tuple(filter(_is_alive, one.jobs))) for one in partitions]
    return [one for one in alive if one.jobs or not one.removable]


def _is_alive(job: Job) -> bool:
    return job.host != os.uname().nodename or started(job.pid) == job.started


def _without(partition: Partition, partitions: list[Partition]) -> list[Partition]:
    return [one for one in partitions if not _same(one, partition)]


def _same(one: Partition, other: Partition) -> bool:
    return (one.server, one.name) == (other.server, other.name)


def started(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1
