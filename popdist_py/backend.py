"""Backend: the host side of a job: all instances, joined over MPI, or one instance alone.

before init()                       initialised by init()     finalised at exit
-------------                       ---------------------     -----------------------------------------
no MPI anywhere                     MPI started and checked   after a good end: all meet, MPI_Finalize
                                    against the launcher      after a failure: straight out, because
                                                              MPI_Finalize would wait for the others

"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from popdist_py.environment import Environment
from popdist_py.errors import BackendError

__all__ = ["Backend"]

_YIELDS = 1000
_NAP_SECONDS = 100e-6
#: Default bound of every wait, seconds: long enough for one instance to validate or save while others wait.
TIMEOUT_SECONDS = 1800.0


class Backend:
    """All instances of a job, or those that ``restricted_to`` selects; byte strings are what it exchanges."""

    def __init__(self, environment: Environment, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._process = os.getpid()
        self._exit_code = 0
        self._mpi: Any = None
        self._communicator: Any = None
        self._foreign_finalize = "mpi4py.MPI" in sys.modules
        if environment.num_local_replicas < environment.num_total_replicas:
            self._start(environment)

    @property
    def rank(self) -> int:
        """Index of this instance among those selected."""
        return int(self._communicator.rank) if self._communicator is not None else 0

    @property
    def size(self) -> int:
        """Number of instances selected."""
        return int(self._communicator.size) if self._communicator is not None else 1

    def all_gather(self, data: bytes) -> list[bytes]:
        """The byte string of every instance, in instance order."""
        if self._communicator is None:
            return [data]
        sizes = self._all_gather_equal(len(data).to_bytes(8, "little"))
        longest = max(int.from_bytes(size, "little") for size in sizes)
        padded = self._all_gather_equal(data.ljust(longest, b"\0")) if longest else [b""] * self.size
        return [part[: int.from_bytes(size, "little")] for part, size in zip(padded, sizes, strict=True)]

    def barrier(self) -> None:
        """Wait until every instance is here."""
        if self._communicator is not None:
            self._wait(self._communicator.Ibarrier(), "synchronize()")

    @contextmanager
    def restricted_to(self, instances: set[int]) -> Iterator[None]:
        """Within, only ``instances`` take part; to be entered by exactly those."""
        whole = self._communicator
        if whole is None:
            yield
            return
        group = whole.group.Incl(sorted(instances))
        self._communicator = whole.Create_group(group)
        group.Free()
        try:
            yield
        finally:
            part, self._communicator = self._communicator, whole
            part.Free()

    def finalise(self) -> None:
        """After a good end: wait for the others, end MPI. After a failure, or in a child: leave MPI as it is."""
        if self._mpi is None or self._mpi.Is_finalized() or os.getpid() != self._process:
            return
        if self._exit_code:
            if self._foreign_finalize:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self._exit_code)
            return
        request = self._communicator.Ibarrier()
        while not request.Test():
            sleep(_NAP_SECONDS)
        self._mpi.Finalize()

    def _start(self, environment: Environment) -> None:
        import mpi4py

        if not self._foreign_finalize:
            mpi4py.rc.finalize = False
        from mpi4py import MPI

        self._mpi, self._communicator = MPI, MPI.COMM_WORLD
        self._check_launcher(environment)
        self._note_failures()
        atexit.register(self.finalise)

    def _check_launcher(self, environment: Environment) -> None:
        if not environment.uniform_replicas_per_instance:
            return
        expected = (environment.num_instances, environment.instance_index)
        found = (self.size, self.rank)
        if expected != found:
            library = self._mpi.Get_library_version().splitlines()[0].strip(" \0")
            self._communicator = None
            raise BackendError(
                f"this is instance {expected[1]} of {expected[0]}, but MPI says process {found[1]} of {found[0]}: "
                f"the launcher and the MPI library of this process ({library}) do not belong together; start with "
                "poprun-py, which matches them, and unset MPI4PY_MPIABI, or choose an MPI with --mpi"
            )

    def _note_failures(self) -> None:
        """Remember that this process ends badly, because an exit hook cannot ask."""
        show, leave = sys.excepthook, sys.exit

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._exit_code = 130 if issubclass(kind, KeyboardInterrupt) else 1
            show(kind, error, trace)

        def exit_(status: Any = None, /) -> Any:
            self._exit_code = status if isinstance(status, int) else int(status is not None)
            leave(status)

        sys.excepthook, sys.exit = excepthook, exit_

    def _all_gather_equal(self, data: bytes) -> list[bytes]:
        received = bytearray(len(data) * self.size)
        self._wait(self._communicator.Iallgather(data, received), "a host collective")
        return [bytes(received[i : i + len(data)]) for i in range(0, len(received), len(data))]

    def _wait(self, request: Any, what: str) -> None:
        tries, deadline = 0, monotonic() + self._timeout
        pause: Callable[[], None] = os.sched_yield
        while not request.Test():
            tries += 1
            if tries == _YIELDS:
                pause = _nap
            if tries > _YIELDS and monotonic() > deadline:
                raise BackendError(
                    f"instance {self.rank} waited {self._timeout:g} s in {what} for the others; "
                    "every instance must make the same calls; look at what they do"
                )
            pause()


def _nap() -> None:
    sleep(_NAP_SECONDS)
