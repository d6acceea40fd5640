"""Backend: the host collectives of a job over MPI, on byte strings; a single instance needs no MPI.

before init()                       initialised by init()     finalised at exit
-------------                       ---------------------     -----------------------------------------
no MPI loaded                       MPI started, and checked  after success: barrier, MPI_Finalize
                                    against the launcher      after a failure: exit at once, because
                                                              MPI_Finalize would wait for the others
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from struct import pack, unpack
from time import monotonic, perf_counter_ns, sleep
from types import TracebackType
from typing import Any
from weakref import WeakSet
from zlib import crc32

from popdist_py import trace
from popdist_py.environment import Environment
from popdist_py.errors import BackendError
from popdist_py.supervisor_socket import notify

#: Polls of a request that only yield the CPU, and seconds to sleep between later ones.
_YIELDS = 1000
_SLEEP_SECONDS = 100e-6
#: Default limit of every wait, seconds: long enough for one instance to validate or save while others wait.
TIMEOUT_SECONDS = 1800.0
_NAME_BYTES = 256
#: Round trips by which two hosts compare their clocks.
_CLOCK_ROUNDS = 20
#: The call that an instance announces when it ends, whatever the others call.
_END = "the end of the program"


class Backend:
    """The collectives of all instances of a job, or of those that ``restricted_to`` selects."""

    def __init__(self, environment: Environment, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._process = os.getpid()
        self._exit_code = 0
        self._mpi: Any = None
        self._communicator: Any = None
        self._foreign_finalize = "mpi4py.MPI" in sys.modules
        self._members: list[int] = []
        #: communicators that layers above have open between these instances
        self.communicators: WeakSet[Any] = WeakSet()
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
        """Return the byte strings of all instances, in instance order; ``what`` must be equal on all of them."""
        if self._communicator is None:
            return [data]
        sizes = self._agree(what, len(data))
        longest = max(sizes)
        padded = self._all_gather_equal(data.ljust(longest, b"\0"), what) if longest else [b""] * self.size
        return [part[:size] for part, size in zip(padded, sizes, strict=True)]

    def broadcast(self, data: bytes, root: int, what: str = "a host broadcast") -> bytes:
        """Return the byte string of instance ``root``; ``what`` must be equal on all instances."""
        if self._communicator is None:
            return data
        buffer = bytearray(data) if self.rank == root else bytearray()
        buffer = buffer.ljust(self._agree(what, len(buffer))[root], b"\0")
        self._wait(self._communicator.Ibcast(buffer, root), what)
        return bytes(buffer)

    def barrier(self) -> None:
        """Wait until every instance has called it."""
        if self._communicator is not None:
            self._agree("synchronize()", 0)

    @contextmanager
    def restricted_to(self, instances: set[int]) -> Iterator[None]:
        """Restrict collectives to ``instances`` while the block runs; exactly those must enter it."""
        if self._communicator is None:
            yield
            return
        parent, members = self._communicator, self._members
        absent = sorted(instances - set(members))
        if absent:
            raise BackendError(f"instances {absent} do not take part here; choose from instances {members}")
        group = parent.group.Incl([members.index(instance) for instance in sorted(instances)])
        self._communicator, self._members = parent.Create_group(group), sorted(instances)
        group.Free()
        try:
            yield
        finally:
            part = self._communicator
            self._communicator, self._members = parent, members
            part.Free()

    def finalise(self) -> None:
        """After success: wait for the others, finalise MPI. After a failure, or in a child: leave MPI alone."""
        if self._mpi is None or self._mpi.Is_finalized() or os.getpid() != self._process:
            return
        if self._exit_code:
            if self._foreign_finalize:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self._exit_code)
            return
        self._timeout = inf
        while {call for _, call in self._exchange_headers(_END, 0)} != {_call_id(_END)}:
            pass  # the others continue, and detect that this instance has ended
        self._compare_clocks()
        self._mpi.Finalize()

    def _start(self, environment: Environment) -> None:
        recorder = trace.recorder()
        if recorder is not None:
            trace.record_memory_rate(recorder)
            trace.record_network(recorder)
        with trace.span("start of MPI", trace.Category.INITIALISATION):
            self._start_mpi(environment)
        self._compare_clocks()

    def _start_mpi(self, environment: Environment) -> None:
        import mpi4py

        # MPI's transport (UCX) would handle SIGHUP by printing its state, and the process would not end
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
            process = f"process {self.rank} of {self.size}"
            library = self._mpi.Get_library_version().splitlines()[0].strip(" \0")
            self._communicator = None
            raise BackendError(
                f"this is {who}, but MPI says {process}: "
                f"the launcher and the MPI library of this process ({library}) do not match; start with "
                "poprun-py, which matches them, and unset MPI4PY_MPIABI, or choose an MPI with --mpi"
            )

    def _note_failures(self) -> None:
        """Record the exit code of this process, which an exit hook cannot ask for."""
        show, leave = sys.excepthook, sys.exit

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._leave_with(130 if issubclass(kind, KeyboardInterrupt) else 1, "raised")
            show(kind, error, trace)

        def exit_(status: Any = None, /) -> Any:
            self._leave_with(status if isinstance(status, int) else int(status is not None), "exiting")
            leave(status)

        sys.excepthook, sys.exit = excepthook, exit_

    def _leave_with(self, code: int, notice: str) -> None:
        """Record the exit code of this process, and notify its supervisor before peers notice that it leaves."""
        self._exit_code = code
        if os.getpid() == self._process:
            notify(f"{notice} {code & 0xFF}")

    def _compare_clocks(self) -> None:
        """Record the clock offset to instance 0: its time minus the time here, in nanoseconds.

        The shortest of several round trips bounds the error; all instances take part, one after the other, if any of
        them records a trace: one whose disk is full does not.
        """
        recorder, best = trace.recorder(), (0, 0)
        if b"1" not in self._all_gather_equal(b"1" if recorder else b"0", "the traces"):
            return
        boots = self._all_gather_equal(trace.boot().encode()[:_NAME_BYTES].ljust(_NAME_BYTES), "the clocks")
        for other in range(1, self.size):
            if boots[other] == boots[0] or boots[other] in boots[:other]:
                continue
            if self.rank == 0:
                self._answer(other)
            elif self.rank == other:
                best = min((self._ask() for _ in range(_CLOCK_ROUNDS)), key=lambda reading: reading[1])
        if recorder and (self.rank == 0 or best != (0, 0)):
            at, (offset, error) = perf_counter_ns(), best
            recorder.define({"clock_offsets": [{"at_ns": at, "offset_ns": offset, "error_ns": error}]})

    def _answer(self, other: int) -> None:
        for _ in range(_CLOCK_ROUNDS):
            self._wait(self._communicator.Irecv(bytearray(1), other), "the clocks")
            self._wait(self._communicator.Isend(pack("<q", perf_counter_ns()), other), "the clocks")

    def _ask(self) -> tuple[int, int]:
        """The time of instance 0 minus the time here, and the bound of its error."""
        answer = bytearray(8)
        before = perf_counter_ns()
        self._wait(self._communicator.Isend(b"?", 0), "the clocks")
        self._wait(self._communicator.Irecv(answer, 0), "the clocks")
        after = perf_counter_ns()
        return unpack("<q", answer)[0] - (before + after) // 2, (after - before + 1) // 2

    def _agree(self, what: str, size: int) -> tuple[int, ...]:
        """Return the sizes of all instances; raise BackendError on all of them if their calls differ."""
        sizes, calls = zip(*self._exchange_headers(what, size), strict=True)
        if _call_id(_END) in calls:
            gone = self._members[calls.index(_call_id(_END))]
            notify(f"left {gone}")
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
        return sizes

    def _exchange_headers(self, what: str, size: int) -> list[tuple[int, int]]:
        """Of all instances, the bytes of their data, and the number of the call, which must be equal."""
        return [unpack("<qq", data) for data in self._all_gather_equal(pack("<qq", size, _call_id(what)), what)]

    def _all_gather_equal(self, data: bytes, what: str) -> list[bytes]:
        received = bytearray(len(data) * self.size)
        self._wait(self._communicator.Iallgather(data, received), what)
        return [bytes(received[i : i + len(data)]) for i in range(0, len(received), len(data))]

    def _wait(self, request: Any, what: str) -> None:
        yields, deadline = 0, monotonic() + self._timeout
        while not self._is_complete(request):
            if yields < _YIELDS:
                yields += 1
                os.sched_yield()
                continue
            if monotonic() > deadline:
                raise BackendError(
                    f"instance {self._members[self.rank]} waited {self._timeout:g} s in {what} for the others; "
                    "every instance must make the same calls; check what the others are doing"
                )
            sleep(_SLEEP_SECONDS)

    def _is_complete(self, request: Any) -> bool:
        try:
            return bool(request.Test())
        except self._mpi.Exception:
            notify("lost -1")
            raise


def _call_id(what: str) -> int:
    return crc32(what.encode())
