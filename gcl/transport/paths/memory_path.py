"""MemoryPath: collectives among ranks that can address each other's memory (one process, or one host).

Tensors in the segments are reduced in place; others are copied through the segments.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from math import prod
from time import monotonic
from typing import Any

import numpy as np

from gcl.core.groups import Group
from gcl.core.operators import Operator
from gcl.core.prepared_call import DONE, MISMATCH, STAGED, WAITING, PreparedCall
from gcl.core.request import REDUCING, Collective, CollectiveCode, Request
from gcl.core.world import World
from gcl.errors import ArgumentError, CollectiveMismatch, CollectiveTimeout, GclError, PeerLost, reason_of
from gcl.kernels.jit import bound
from gcl.reduce.reduction import new_scratch, recipe
from gcl.transport.memory.chunked import chunked_all_reduce, staging_layout
from gcl.transport.memory.deadlock_detector import DeadlockDetector, WaitStatus
from gcl.transport.memory.memory_domain import MemoryDomain
from gcl.transport.memory.relayed_copies import relay
from gcl.transport.memory.segment import Segment
from gcl.transport.memory.staged_copies import StagedCopies
from gcl.transport.memory.zero_copy import zero_copy_copy, zero_copy_reduce
from gcl.transport.paths.path_state import BreakablePath, PathState
from gcl.transport.rendezvous import rank_table, rendezvous
from gcl.transport.rendezvous.rank_table import Meeting, Table

#: Copies of larger tensors are not kept from call to call.
KEPT_BYTES = 1 << 18
#: Collectives that read private tensors without copying them to the segment first.
_DIRECT = (CollectiveCode.ALL_REDUCE, CollectiveCode.SHARED_ALL_GATHER)


class MemoryPath(BreakablePath):
    """Runs collectives for one rank of ``domain``."""

    def __init__(
        self,
        domain: MemoryDomain,
        world: World,
        group: Group,
        timeout: float,
        *,
        neighbours: int = 0,
        across_hosts: bool = False,
    ) -> None:
        """``neighbours``: number of ranks of this host, if ``domain`` has not all of them.

        ``across_hosts``: the machine has several hosts, with more ranks than cores.
        """
        self.name = domain.name
        self._domain, self._world, self.timeout = domain, world, timeout
        staging = staging_layout(world.counts, domain.smallest, domain.core_cache)
        self._table = rank_table.new_rank_table(
            rank=domain.rank,
            control=domain.control.ctypes.data,
            arenas=domain.arenas,
            owners=world.owners,
            groups=group.all_members(),
            waits=rendezvous.new_waits(max(neighbours, domain.ranks), domain.cores, across_hosts=across_hosts),
            chunk=staging.chunk,
            sets=staging.sets,
        )
        domain.segment.reserve(staging.nbytes(world.local, world.ranks))
        self._scratch = new_scratch()
        self._kept: list[np.ndarray] = []
        self._refusal = ""
        self._state = PathState(self._leave)
        self.prepared = self._state.prepared
        self._wait_status = WaitStatus(domain, world.describe, self.fail)
        # at exit a thread may still be in a call; gcl.connect closes the paths of processes
        weakref.finalize(self, _leave_when_collected, os.getpid(), domain, self._table).atexit = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor in the segment."""
        return self._domain.segment.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Allocate a zeroed tensor that all ranks see, collectively; it lives as long as the communicator."""
        self._state.check()
        offset = np.zeros((self._world.local, 1), np.int64)
        if self._domain.rank == 0:
            self._kept.append(self._domain.segment.empty(shape, dtype))
            offset[0] = self._kept[-1].ctypes.data - self._domain.arenas[0]
        detail = f"shared({list(shape)}, {dtype})"
        self.run(Request(Collective.BROADCAST, Operator.ADD, offset.dtype, 1, detail=detail), offset, offset)
        start, nbytes = int(offset[0, 0]), prod(shape) * dtype.itemsize
        return self._domain.memories[0][start : start + nbytes].view(dtype).reshape(shape)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self._state.check()
        call = self._prepare(request, x, out)
        if x.nbytes <= KEPT_BYTES or not isinstance(call.run, StagedCopies):
            self.prepared[request.key(x, out)] = call
        try:
            status = call.run()
            if status != DONE:
                self.finish(call, status)
        except BaseException as error:
            self.fail(error)
            raise

    def refuse(self, error: ArgumentError) -> None:
        """Tell ranks that wait for this one why it will not arrive."""
        if self._state.fault is None:
            self._refusal = str(error)
            self._domain.write_text(self._refusal)
            rank_table.refuse(self._table)

    def _leave(self, error: BaseException | None) -> None:
        _announce_leaving(self._domain, self._table, reason_of(error))
        if error is None and rank_table.is_outside(self._table):  # else a thread still uses that memory
            self._domain.close()

    @property
    def rank(self) -> int:
        """This rank among those that share memory."""
        return self._domain.rank

    @property
    def cores(self) -> int:
        """Number of cores that the ranks may use."""
        return self._domain.cores

    @property
    def memories(self) -> list[np.ndarray]:
        """The segments of all ranks."""
        return list(self._domain.memories)

    @property
    def ranks(self) -> int:
        """Number of ranks that share memory."""
        return self._domain.ranks

    def meeting(self, request: Request, x: np.ndarray, out: np.ndarray) -> Meeting:
        """The meetings before and after work of the caller on two tensors in the segment."""
        offsets = self._offsets(request, x, out)
        words = request.words(offsets[0] or 0, offsets[1] or 0, x, out)
        return Meeting(self._table, words, [tensor.nbytes // self._world.local for tensor in (x, out)])

    def addresses(self, request: Request, x: np.ndarray) -> list[int]:
        """Meet twice, and return the address of each replica's part of every rank's ``x``."""
        meeting = self.meeting(request, x, x)
        self.hold(meeting.enter, request)
        meeting.look()
        self.hold(meeting.leave, request)
        return list(map(int, meeting.addresses[0]))

    def exchange(self, request: Request, x: np.ndarray, work: Callable[[list[int]], None]) -> None:
        """Make the call ``request``: do ``work`` on the addresses of every rank's ``x``, between two meetings.

        ``x`` [1, n] lies in the segment; its size may differ from rank to rank.
        """

        def worked(meeting: Meeting) -> None:
            work(list(map(int, meeting.addresses[0])))
            self.hold(meeting.leave, request)

        self._met(request, x, worked)

    def relay(self, request: Request, area: np.ndarray, words: Callable[[list[int]], np.ndarray]) -> None:
        """Make the call ``request``: ``relay`` the ``words`` for the addresses of every rank's area.

        ``area`` [1, n] lies in the segment.
        """

        def relayed(meeting: Meeting) -> None:
            encoded = words(list(map(int, meeting.addresses[0])))
            nodes = np.zeros(self.ranks + 1, np.int64)
            self.hold(bound(relay, self._table, encoded, self._recipe(request), self._scratch, nodes), request)

        self._met(request, area, relayed)

    def _met(self, request: Request, x: np.ndarray, rest: Callable[[Meeting], None]) -> None:
        """Meet all ranks for the call ``request``, and do the ``rest`` of it."""
        self._state.check()
        try:
            meeting = self.meeting(request, x, x)
            self.hold(meeting.enter, request)
            if not rank_table.agreed(self._table):
                raise self._mismatch(request)
            meeting.look()
            rest(meeting)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def segment(self) -> Segment:
        """The memory of this rank that the others can address."""
        return self._domain.segment

    @property
    def takes_turns(self) -> bool:
        """Whether there are fewer cores than ranks."""
        return self.ranks > self.cores

    @property
    def uses_process_vm(self) -> bool:
        """Whether the kernel may copy between the processes of the ranks."""
        return self._domain.uses_process_vm

    def meet(self, request: Request) -> None:
        """Wait for all ranks; then everything they wrote is visible."""
        rank_table.meet_again(self._table)
        self.hold(lambda: DONE if rank_table.met(self._table) else WAITING, request)

    def hold(self, step: Callable[[], int], request: Request) -> int:
        """Repeat a ``step`` of a meeting while it returns WAITING; return its final result."""
        return self._wait(step, request, step())

    def near(self, array: np.ndarray) -> np.ndarray:
        """``array`` itself if it is in the segment, else uninitialised memory for it there."""
        if self._domain.segment.offset_of(array) is not None:
            return array
        return self._domain.segment.uninitialised(array.shape, array.dtype)

    def _prepare(self, request: Request, x: np.ndarray, out: np.ndarray) -> PreparedCall:
        near_x = x if request.code in _DIRECT else self.near(x)
        near_out = near_x if out is x else out
        offsets = self._offsets(request, near_x, near_out)
        words = request.words(offsets[0] or 0, offsets[1] or 0, near_x, near_out)
        run: Callable[[], int]
        rest = None
        if request.collective in REDUCING:
            kernel = self._table, words, self._recipe(request), self._scratch
            run = bound(zero_copy_reduce, *kernel)
            rest = partial(chunked_all_reduce, *kernel) if request.collective is Collective.ALL_REDUCE else None
        else:
            run = bound(zero_copy_copy, self._table, words)
        if near_x is not x:
            run = StagedCopies(run, (near_x, x), (out, near_out))
        return PreparedCall.of(self.prepared, run, request, x, out, rest=rest)

    def _offsets(self, request: Request, x: np.ndarray, out: np.ndarray) -> tuple[int | None, int | None]:
        """Offsets of two tensors in the segment, as this kind of call announces them."""
        segment = self._domain.segment
        offsets = segment.offset_of(x), segment.offset_of(out)
        if request.shared:
            return x.ctypes.data - segment.address, 0
        return (-1, -1) if request.collective is Collective.ALL_REDUCE and None in offsets else offsets

    def _recipe(self, request: Request) -> np.ndarray:
        size = int(self._table[Table.GROUP_SIZE])
        return recipe(request.operator, (1,) * size, request.dtype, request.dtype, size)

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete ``call``, which has started; the caller passes an error of this method to ``fail``."""

        def go_on(status: int) -> int:
            return call.rest() if status == STAGED and call.rest is not None else status

        end = self._wait(lambda: go_on(call.run()), call.request, go_on(status))
        if end == MISMATCH:
            raise self._mismatch(call.request)

    def _wait(self, again: Callable[[], int], request: Request, status: int) -> int:
        deadline, arrivals = monotonic() + self.timeout, rank_table.arrivals(self._table)
        detector: DeadlockDetector | None = None
        while status == WAITING:
            if rank_table.arrivals(self._table) != arrivals:  # by now it waits for something else
                deadline, arrivals = monotonic() + self.timeout, rank_table.arrivals(self._table)
                detector = None
            overdue = monotonic() >= deadline
            self._check_peers(request)
            detector = detector or DeadlockDetector(self._wait_status, request)
            detector.look()
            status = again()
            if status == WAITING and overdue:
                missing = ", ".join(map(self._world.describe, rank_table.missing(self._table)))
                raise CollectiveTimeout(
                    f"{request} waited {self.timeout:g} s for {missing}; check what they are doing, or raise timeout"
                )
        return status

    def _check_peers(self, request: Request) -> None:
        """Raise PeerLost if a rank that this one waits for can no longer arrive, or the error that ended the path."""
        self._state.check()
        for rank in rank_table.missing(self._table):
            why = self._gone(request, rank)
            if why and rank in rank_table.missing(self._table):  # else it arrived before it left
                raise why

    @property
    def waiting(self) -> int:
        """Number of ranks that wait in a call that this one has not begun."""
        return self._wait_status.waiting()

    def check(self) -> None:
        """Raise what broke this path, if anything did."""
        self._state.check()

    def departed(self, waiting: str, rank: int) -> GclError | None:
        """The error that ``rank``, for which ``waiting`` waits, has left; None if it has not."""
        who, alive = self._world.describe(rank), self._domain.alive(rank)
        if rendezvous.left(self._table[Table.CONTROL], rank):
            return PeerLost.departed(waiting, who, self._domain.read_text(rank) or "find out why it left")
        died = f"{waiting} waits for {who}, whose process has died; check its output"
        return None if alive else PeerLost(died, peer=who)

    def _gone(self, request: Request, rank: int) -> GclError | None:
        """The reason why ``rank`` can no longer arrive, if there is one."""
        who, alive = (
            self._world.describe(rank),
            self._domain.alive(rank),
        )  # checked first: it may write the reason just before it ends
        left = rendezvous.left(self._table[Table.CONTROL], rank)
        if left == rendezvous.CROSSED:
            return CollectiveMismatch(self._domain.read_text(rank))
        if rank_table.refused(self._table, rank):  # the cause, also if it has left then
            return CollectiveMismatch.refused(request, who, self._domain.read_text(rank))
        if left:
            reason = self._domain.read_text(rank) or "call it on all ranks, or on none, and find out why it left"
            return PeerLost.departed(request, who, reason)
        if not alive:
            died = f"{request} waits for {who}, whose process has died; check its output"
            return PeerLost(died, died, who)
        return None

    def _mismatch(self, request: Request) -> CollectiveMismatch:
        """Exchange the calls and call sites of all ranks; all build the same error."""
        refused = f", after a call that was refused ({self._refusal})" if rank_table.had_refused(self._table) else ""
        self._domain.write_text(request.with_call_site(refused))
        self.meet(request)
        calls = [(self._world.describe(r), self._domain.read_text(r)) for r in range(self._domain.ranks)]
        self.meet(request)
        return CollectiveMismatch.between(calls)


def _announce_leaving(domain: MemoryDomain, table: np.ndarray, reason: str) -> None:
    """Announce that this rank has left, unless that has been announced."""
    if rendezvous.left(table[Table.CONTROL], domain.rank):
        return
    if reason or not rank_table.has_refused(table):  # else the reason has been written before
        domain.write_text(reason)
    rendezvous.mark_left(table[Table.CONTROL], domain.rank, rendezvous.LEFT)


def _leave_when_collected(process: int, domain: MemoryDomain, table: np.ndarray) -> None:
    """Leave when a path that was not closed is collected; a forked child is not a rank."""
    if os.getpid() == process:
        _announce_leaving(domain, table, "")
