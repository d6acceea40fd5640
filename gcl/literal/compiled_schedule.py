"""Script: a schedule prepared for the replicas of one rank, which shares memory with the others.

No copy, no allocation and no table look-up is left for the call.

    stage       convert, rearrange, run the program of a phase, ...; each fills the tensor that the next one reads
    action      one numpy call on slices of those tensors, of this rank's arena, or of a peer's
    meeting     one per exchange

What is sent lies in the arena of the sender, where the receiver adds it up straight away: the copy of an exchange and
the Reduce that follows become one action. Buffers on their way exist twice, and are written in turn; so nobody writes
what a peer may still read, and one meeting per exchange is enough:

    epoch            1                  2                  3
    between          write version 0    write version 1    write version 0     all have met since it was read
    peers read                          version 0          version 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.core.layout import HostRearrangement
from gcl.core.operators import Operator
from gcl.core.request import REDUCING, Collective, Request
from gcl.core.world import World
from gcl.literal.double_buffering import Key, Layout, fused, key_of, sent_from_io, versions_of
from gcl.scheduling.phases import Phase
from gcl.scheduling.program.interpreter import OPERATIONS, Operation
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Copy, Exchange, Reduce, Slice
from gcl.scheduling.schedule import Schedule
from gcl.transport.memory.segment import array_at
from gcl.transport.paths.memory_path import MemoryPath

__all__ = ["Script", "runs_as_script"]

_LINE = 64  # bytes; buffers begin on one
#: Tensors that change from call to call.
_X, _OUT = 0, 1
#: (tensor, row, first element, end)
Place = tuple[int, int, int, int]
Action = tuple[Callable[..., object], tuple[Place, ...]]
Fill = Callable[[np.ndarray, np.ndarray], object]


def runs_as_script(plan: Schedule) -> bool:
    """Whether slices of every buffer are equal or disjoint, and no version is written while it may be read."""
    return all(versions_of(program) is not None for program in plan.programs)


class Script:
    """``plan`` for the replicas of one rank; every rank must make it, and run it, at the same time."""

    def __init__(
        self, plan: Schedule, request: Request, wide: np.dtype[Any], world: World, memory: MemoryPath
    ) -> None:
        self._request, self._world, self._memory = request, world, memory
        self._local = range(world.offset, world.offset + world.local)
        self._tensors: list[np.ndarray] = [np.empty((0, 0))] * 2
        self._actions: list[Action] = []
        stages = list(_stages(plan, request, wide))
        self._arena, self._addresses = self._share([Layout(s.phase.program, s.dtype) for s in stages if s.phase])
        start, current = 0, _X
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1 and not request.shared
            target = _OUT if last else self._tensor(np.zeros((world.local, stage.elements), stage.dtype))
            if stage.phase is None:
                self._actions.append((self._whole(stage.fill, current, target), ()))
            else:
                start = _Writer(self, stage, current, target, start).end
            current = target
        if current != _OUT:
            self._actions.append((self._whole(_first_row, current, _OUT), ()))

    def run(self, x: np.ndarray, out: np.ndarray) -> None:
        """Run it from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        tensors, rows = self._tensors, self._world.local
        tensors[_X] = x.reshape(rows, -1)
        shared = self._request.shared
        tensors[_OUT] = out.reshape(1, -1) if shared else out.reshape(rows, -1)
        for action, places in self._actions:
            action(*[tensors[tensor][row, low:high] for tensor, row, low, high in places])

    def meet(self) -> None:
        """Every rank is here."""
        self._memory.meet(self._request)

    def _share(self, layouts: list[Layout]) -> tuple[np.ndarray, list[int]]:
        """Memory that all ranks see, and where that of each replica is."""
        nbytes = max(_LINE, sum(layout.nbytes for layout in layouts))
        arena = self._memory.empty((self._world.local, nbytes), np.dtype(np.uint8))
        whole = Request(None, Operator.ADD, arena.dtype, nbytes)
        addresses = self._memory.addresses(whole, arena)
        return arena, addresses

    def _tensor(self, made: np.ndarray) -> int:
        self._tensors.append(made)
        return len(self._tensors) - 1

    def _whole(
        self, fill: Callable[[np.ndarray, np.ndarray], object], source: int, target: int
    ) -> Callable[[], object]:
        return lambda: fill(self._tensors[source], self._tensors[target])


@dataclass(frozen=True)
class _Stage:
    """Fills a tensor [local, elements]: by ``fill`` from the one before, or by the program of ``phase``."""

    elements: int
    dtype: np.dtype[Any]
    fill: Fill
    phase: Phase | None = None
    combine: Operation | None = None


def _stages(plan: Schedule, request: Request, wide: np.dtype[Any]) -> Iterable[_Stage]:
    operation, size = OPERATIONS[request.operator], plan.group.size
    reduces = request.collective in REDUCING and request.operator is not Operator.LOCAL
    dtype = wide if reduces else request.dtype
    if reduces and (dtype != request.dtype or request.operator is Operator.SQUARE_ADD):
        yield _Stage(request.count, dtype, lambda x, out: _prepare(operation, x, out))
    scatters = [p for p in plan.phases if p.program.collective is not Collective.ALL_GATHER]
    for phase in plan.phases:
        program = phase.program
        if phase.before is not None and not _identity(phase.before):
            yield _Stage(phase.before.gathered_size, dtype, phase.before.fill_gathered)
        yield _Stage(program.output_fragments * program.width, dtype, _nothing, phase, operation)
        if phase.after is not None and not _identity(phase.after):
            yield _Stage(phase.after.reference_size, dtype, phase.after.fill_reference)
        if reduces and phase is scatters[-1]:
            if request.operator is Operator.MEAN or dtype != request.dtype:
                yield _Stage(program.width, request.dtype, lambda x, out: _finish(operation, size, x, out))
            dtype = request.dtype


def _prepare(operation: Operation, x: np.ndarray, out: np.ndarray) -> None:
    np.copyto(out, x, casting="unsafe")
    prepared = operation.prepare(out)
    if prepared is not out:
        out[...] = prepared


def _into(operation: Operation) -> Callable[[np.ndarray, np.ndarray, np.ndarray], object]:
    return lambda own, received, out: operation.combine(own, received, out=out)


def _finish(operation: Operation, size: int, x: np.ndarray, out: np.ndarray) -> None:
    np.copyto(out, operation.finish(x, size), casting="unsafe")


def _first_row(x: np.ndarray, out: np.ndarray) -> None:
    out[0] = x[0]


def _nothing(x: np.ndarray, out: np.ndarray) -> None:
    """A program fills its tensor by its own actions."""


def _identity(order: HostRearrangement) -> bool:
    return order.slices == ((0, order.gathered_size),) or order.gathered_size == 0


class _Writer:
    """Writes the actions of one program into ``script``."""

    def __init__(self, script: Script, stage: _Stage, source: int, target: int, start: int) -> None:
        assert stage.phase is not None
        assert stage.combine is not None
        self._script, self._program, self._dtype = script, stage.phase.program, stage.dtype
        self._combine, self._io = _into(stage.combine), {INPUT: source, OUTPUT: target}
        self._layout, self._start = Layout(self._program, stage.dtype), start
        self.end = start + self._layout.nbytes
        versions = versions_of(self._program)
        assert versions is not None
        self._fused, self._width = fused(self._program), self._program.width
        self._known: dict[tuple[int, str, int], int] = {}
        self._received: dict[tuple[Slice, int], Place] = {}
        self._turn = 0
        for step, read, written in zip(self._program.steps, versions.read, versions.written, strict=True):
            if isinstance(step, Exchange):
                self._exchange(step, read, written)
            else:
                self._locally(step, read, written)

    def _locally(self, step: Reduce | Copy, read: dict[Key, int], written: dict[Key, int]) -> None:
        for replica in self._script._local:
            target = self._place(step.target, replica, written)
            if isinstance(step, Reduce):
                own, received = (self._place(part, replica, read) for part in (step.own, step.received))
                self._do(self._combine, own, received, target)
            else:
                self._do(np.copyto, target, self._place(step.source, replica, read))

    def _exchange(self, exchange: Exchange, read: dict[Key, int], written: dict[Key, int]) -> None:
        self._turn ^= 1
        self._received.clear()
        starts = self._put(exchange)
        self._script._actions.append((self._script.meet, ()))
        here = self._script._local
        for copy in exchange.copies:
            for sender, receiver in copy.pairs():
                if receiver not in here:
                    continue
                if sender in here or copy.source not in starts:
                    source = self._place(copy.source, sender, read)
                else:
                    source = self._sent(sender, starts[copy.source], copy.source.elements)
                if key_of(copy.target) in self._fused:
                    self._received[copy.target, receiver] = source
                else:
                    self._do(np.copyto, self._place(copy.target, receiver, written), source)

    def _put(self, exchange: Exchange) -> dict[Slice, int]:
        """Put what local replicas send from input or output where peers can read it; where each slice begins."""
        starts: dict[Slice, int] = {}
        start, here = 0, self._script._local
        for part in sent_from_io(exchange):
            starts[part] = start
            senders = {
                sender
                for copy in exchange.copies
                for sender, receiver in copy.pairs()
                if copy.source == part and sender in here and receiver not in here
            }
            for sender in sorted(senders):
                self._do(np.copyto, self._sent(sender, start, part.elements), self._place(part, sender, {}))
            start += part.elements
        return starts

    def _sent(self, replica: int, start: int, elements: int) -> Place:
        tensor, row = self._buffer(replica, INPUT, self._turn)
        return tensor, row, start, start + elements

    def _place(self, part: Slice, replica: int, versions: dict[Key, int]) -> Place:
        if (part, replica) in self._received:
            return self._received[part, replica]
        bounds = part.bounds(replica, self._width)
        if part.buffer in self._io:
            return self._io[part.buffer], replica - self._script._local.start, bounds.start, bounds.stop
        tensor, row = self._buffer(replica, part.buffer, versions[key_of(part)])
        return tensor, row, bounds.start, bounds.stop

    def _buffer(self, replica: int, name: str, version: int) -> tuple[int, int]:
        """The tensor and row that hold a buffer of ``replica``, here or at a peer."""
        at = (replica, name, version)
        if at not in self._known:
            address = self._script._addresses[replica] + self._start + self._layout.offset(name, version)
            self._known[at] = self._script._tensor(array_at(address, (1, self._layout.sizes[name]), self._dtype))
        return self._known[at], 0

    def _do(self, action: Callable[..., object], *places: Place) -> None:
        if places[0][2] < places[0][3]:
            self._script._actions.append((action, places))
