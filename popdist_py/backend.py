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
from math import inf
from struct import pack, unpack
from time import monotonic, sleep
from types import TracebackType
from typing import Any
from zlib import crc32

from popdist_py.environment import Environment
from popdist_py.errors import BackendError

__all__ = ["Backend"]

_YIELDS = 1000
_NAP_SECONDS = 100e-6
#: Default bound of every wait, seconds: long enough for one instance to validate or save while others wait.
TIMEOUT_SECONDS = 1800.0
_NAME_BYTES = 256
#: What an instance that has ended answers to every call of the others.
_END = "the end of the program"


class Backend:
    """All instances of a job, or those that ``restricted_to`` selects; byte strings are what it exchanges."""

    def __init__(self, environment: Environment, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._process = os.getpid()
        self._exit_code = 0
        self._mpi: Any = None
        self._communicator: Any = None
        self._foreign_finalize = "mpi4py.MPI" in sys.modules
        self._members: list[int] = []
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

    def all_gather(self, data: bytes, what: str = "a host collective") -> list[bytes]:
        """The byte string of every instance, in instance order; ``what`` must be equal on all of them."""
        if self._communicator is None:
            return [data]
        sizes = self._agree(what, len(data))
        longest = max(sizes)
        padded = self._all_gather_equal(data.ljust(longest, b"\0"), what) if longest else [b""] * self.size
        return [part[:size] for part, size in zip(padded, sizes, strict=True)]

    def broadcast(self, data: bytes, root: int, what: str = "a host broadcast") -> bytes:
        """The byte string of instance ``root``; ``what`` must be equal on all instances."""
        if self._communicator is None:
            return data
        buffer = bytearray(data) if self.rank == root else bytearray()
        buffer = buffer.ljust(self._agree(what, len(buffer))[root], b"\0")
        self._wait(self._communicator.Ibcast(buffer, root), what)
        return bytes(buffer)

    def barrier(self) -> None:
        """Wait until every instance is here."""
        if self._communicator is not None:
            self._agree("synchronize()", 0)

    @contextmanager
    def restricted_to(self, instances: set[int]) -> Iterator[None]:
        """Within, only ``instances`` take part; to be entered by exactly those."""
        if self._communicator is None:
            yield
            return
        whole, members = self._communicator, self._members
        absent = sorted(instances - set(members))
        if absent:
            raise BackendError(f"instances {absent} were asked for where only instances {members} take part")
        group = whole.group.Incl([members.index(instance) for instance in sorted(instances)])
        self._communicator, self._members = whole.Create_group(group), sorted(instances)
        group.Free()
        try:
            yield
        finally:
            part = self._communicator
            self._communicator, self._members = whole, members
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
        self._timeout = inf
        while {call for _, call in self._meet(_END, 0)} != {_code(_END)}:
            pass  # others go on; they are told
        self._mpi.Finalize()

    def _start(self, environment: Environment) -> None:
        import mpi4py

        # MPI's transport would answer a hang-up of the terminal by printing, and so outlive it
        os.environ.setdefault("UCX_DEBUG_SIGNO", "0")
        if not self._foreign_finalize:
            mpi4py.rc.finalize = False
        from mpi4py import MPI

        if MPI.Is_finalized():
            raise BackendError("MPI was finalised and cannot start again; call finalizeBackend() once, at the end")
        self._mpi, self._communicator = MPI, MPI.COMM_WORLD
        self._members = list(range(self.size))
        self._check_launcher(environment)
        self._note_failures()
        atexit.register(self.finalise)

    def _check_launcher(self, environment: Environment) -> None:
        if environment.uniform_replicas_per_instance:
            fits = (environment.num_instances, environment.instance_index) == (self.size, self.rank)
            who = f"instance {environment.instance_index} of {environment.num_instances}"
        else:
            fits = 1 < self.size <= environment.num_total_replicas
            who = f"one instance of several, with {environment.num_local_replicas} replicas"
        if not fits:
            found = f"process {self.rank} of {self.size}"
            library = self._mpi.Get_library_version().splitlines()[0].strip(" \0")
            self._communicator = None
            raise BackendError(
                f"this is {who}, but MPI says {found}: "
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

    def _agree(self, what: str, size: int) -> list[int]:
        """The sizes of all instances; raise BackendError on all of them if they do not call the same."""
        sizes, calls = zip(*self._meet(what, size), strict=True)
        if _code(_END) in calls:
            gone = self._members[calls.index(_code(_END))]
            raise BackendError(
                f"instance {gone} has ended, but instance {self._members[self.rank]} called {what}; "
                "every instance must make the same calls"
            )
        if len(set(calls)) > 1:
            texts = self._all_gather_equal(what.encode()[:_NAME_BYTES].ljust(_NAME_BYTES), what)
            other = next(i for i, call in enumerate(calls) if call != calls[self.rank])
            raise BackendError(
                f"Tensor layouts did not match on all instances: this one called {what}, instance "
                f"{self._members[other]} called {texts[other].decode(errors='replace').rstrip()}; "
                "every instance must make the same calls with equal shapes and dtypes"
            )
        return list(sizes)

    def _meet(self, what: str, size: int) -> list[tuple[int, int]]:
        """(size, code of the call) of every instance."""
        return [unpack("<qq", word) for word in self._all_gather_equal(pack("<qq", size, _code(what)), what)]

    def _all_gather_equal(self, data: bytes, what: str) -> list[bytes]:
        received = bytearray(len(data) * self.size)
        self._wait(self._communicator.Iallgather(data, received), what)
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
                    f"instance {self._members[self.rank]} waited {self._timeout:g} s in {what} for the others; "
                    "every instance must make the same calls; look at what they do"
                )
            pause()


def _code(what: str) -> int:
    return crc32(what.encode())


def _nap() -> None:
    sleep(_NAP_SECONDS)
