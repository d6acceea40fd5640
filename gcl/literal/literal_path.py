"""Literal path: a data path that runs the step programs of a named method, exchange by exchange, as IPUs would.

    direct path (method auto)     each rank reduces its slice from its peers' memory, in one balanced tree
    literal (any other method)    announce   check that every rank makes the same call
                                  execute    run the part of each program of the local replicas (``interpreter``)
                                  end        wait until no rank reads from the others any more

Contributions combine in the order of the method. Half types are widened to float32 for the reduce-scatters and
rounded once, before the all-gathers, so that the result equals that of the interpreter for float32 tensors, rounded;
partial results in transit are therefore twice as large as modelled. MEAN of integers is likewise summed in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gcl.communicator import Communicator
from gcl.core.data_path import DataPath
from gcl.core.dispatch import Dispatch
from gcl.core.groups import Group
from gcl.core.operators import Operator
from gcl.core.prepared_call import PreparedCall
from gcl.core.request import REDUCING, Collective, Request
from gcl.core.world import World
from gcl.errors import ArgumentError
from gcl.fabric.fabric import MAX_DOMAIN, Fabric, Topology
from gcl.kernels.dtypes import sum_dtype
from gcl.literal.slice_transport import transport_for
from gcl.scheduling.methods.method import Method
from gcl.scheduling.options import Options
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.program.interpreter import OPERATIONS, InterpreterState, execute
from gcl.scheduling.program.step_program import StepProgram
from gcl.scheduling.schedule import Schedule, schedule
from gcl.transport.paths.path_state import BreakablePath, PathState

_RINGS = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
#: Operators whose partial results would round or wrap unless they are held in a wider dtype.
_SUMS = (Operator.ADD, Operator.MEAN, Operator.MUL, Operator.SQUARE_ADD)
_MAX_SCHEDULES = 64  # kept per communicator


def default_fabric(replicas: int) -> Fabric:
    """Single-IPU replicas in the least number of IPU-Link domains that divides them evenly."""
    fitting = (domains for domains in range(1, replicas + 1) if replicas % domains == 0)
    domains = next(domains for domains in fitting if replicas // domains <= MAX_DOMAIN)
    return Fabric(replicas, domains=domains, topology=Topology.of_domain(replicas // domains))


def chosen(fabric: Fabric, group: Group, request: Request) -> Schedule | None:
    """The schedule that GCL would run for ``request`` on ``fabric``; None for a barrier, or if there is none."""
    if request.collective is None:
        return None
    try:
        return schedule(
            request.collective,
            fabric,
            request.count,
            itemsize=request.dtype.itemsize,
            group=group,
            root=request.root,
        )
    except ArgumentError:
        return None


class LiteralPath(BreakablePath):
    """Runs step programs over the ranks that ``path`` joins."""

    def __init__(self, path: DataPath, world: World, group: Group, fabric: Fabric, options: Options) -> None:
        self.name = path.name
        self._path, self._world, self._group, self.fabric = path, world, group, fabric
        self.chain, self._options = options.method, options
        self.schedule_for(Collective.ALL_REDUCE, 0, 4)  # raises now if fabric, group and methods do not fit
        self._transport = transport_for(path, world)
        self._scheduled = lru_cache(_MAX_SCHEDULES)(self.schedule_for)
        self._announced = lru_cache(_MAX_SCHEDULES)(self._announcement)
        self._nothing = path.empty((world.local, 0), np.dtype(np.float32))
        self._state = PathState(self._leave)
        self.prepared = self._state.prepared

    def schedule_for(
        self, collective: Collective, elements: int, itemsize: int, op: Operator = Operator.ADD, root: int = 0
    ) -> Schedule:
        """The schedule of a collective of this communicator."""
        methods = (Method.AUTO,) if op is Operator.LOCAL else _part_of_chain(self.chain, collective)
        return schedule(
            collective,
            self.fabric,
            elements,
            itemsize=itemsize,
            group=self._group,
            methods=methods,
            op=op,
            root=root,
            options=self._options,
        )

    def fragment(self, elements: int, dtype: np.dtype[Any], op: Operator) -> int:
        """Elements of one member's fragment in a reduce-scatter."""
        plan = self._scheduled(Collective.REDUCE_SCATTER, elements, dtype.itemsize, _local_or_add(op), 0)
        return plan.phases[-1].program.width

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of the path below."""
        return self._path.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of the path below, one for all ranks that share memory."""
        return self._path.shared(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run the programs of ``request`` from ``x`` to ``out`` (C-contiguous, leading axis the local replicas)."""
        self._state.check()
        if request.collective is None:
            self._path.run(request, x, out)
            return
        plan = self._schedule_of(request)
        try:
            self._path.run(self._announced(request), self._nothing, self._nothing)
            self._execute(plan, request, x, out)
        except BaseException as error:
            self.fail(error)
            raise

    def refuse(self, error: ArgumentError) -> None:
        """Publish the refusal through the path below."""
        self._path.refuse(error)

    def finish(self, call: PreparedCall, status: int) -> None:
        """Do nothing: step programs have no prepared calls."""

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self._path.close()
        else:
            self._path.fail(error)

    def _execute(self, plan: Schedule, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        wide, operation = _travelling(request), OPERATIONS[request.operator]
        reduces = request.collective in REDUCING and request.operator is not Operator.LOCAL
        exchanges = (exchange for program in plan.programs for exchange in program.exchanges)
        most = max((sum(copy.source.elements for copy in exchange.copies) for exchange in exchanges), default=0)
        self._transport.begin(request, most, wide)
        rows = x.reshape(self._world.local, -1)
        scatters = [phase for phase in plan.phases if phase.program.collective is not Collective.ALL_GATHER]
        with np.errstate(all="ignore"):  # as the compiled kernels do
            if reduces:
                rows = operation.prepare(rows.astype(wide, copy=False))
                rows = self._phases(scatters, rows, request)
                rows = operation.finish(rows, self._group.size).astype(request.dtype, copy=False)
                rows = self._phases(list(plan.phases[len(scatters) :]), rows, request)
            else:
                rows = self._phases(list(plan.phases), rows, request)
        if request.shared:
            out.reshape(-1)[...] = rows[0]
        else:
            out.reshape(self._world.local, -1)[...] = rows
        self._transport.end()

    def _phases(self, phases: Sequence[ProgramPhase], rows: np.ndarray, request: Request) -> np.ndarray:
        for phase in phases:
            if phase.before is not None and not phase.before.is_identity:
                rows = phase.before.rearrange(rows)
            rows = self._program(phase.program, rows, request)
            if phase.after is not None and not phase.after.is_identity:
                rows = phase.after.undo(rows)
        return rows

    def _program(self, program: StepProgram, rows: np.ndarray, request: Request) -> np.ndarray:
        """Run ``program`` on the local replicas: [local, input elements] to [local, output elements]."""
        results = np.zeros((len(rows), program.output_fragments * program.width), rows.dtype)
        first = self._world.offset
        states = {first + i: InterpreterState(program, first + i, rows[i], results[i]) for i in range(len(rows))}
        execute(program, states, self._transport, OPERATIONS[request.operator].combine)
        return results

    def planned(self, request: Request) -> Schedule | None:
        """The programs that ``request`` runs; None for a barrier."""
        return self._schedule_of(request) if request.collective is not None else None

    def method_of(self, request: Request) -> str:
        """The methods of the programs that ``request`` runs, each once."""
        return ", ".join(dict.fromkeys(program.method for program in self._schedule_of(request).programs))

    def _schedule_of(self, request: Request) -> Schedule:
        op = _local_or_add(request.operator)
        return self._scheduled(request.collective, request.count, request.dtype.itemsize, op, request.root)

    def _announcement(self, request: Request) -> Request:
        call = f"{request} by {','.join(self.chain)}"
        return Request(None, Operator.ADD, np.dtype(np.float32), 0, detail=call)


class LiteralCommunicator(Communicator):
    """A communicator whose collectives are the step programs of its method.

    It has every method of Communicator, and those that concern step programs. Shards are cut as ``schedule(...)``
    cuts them (GCL reference, section 5): per IPU of a replica, with at least one element for each direction of the
    method. A list of tensors is reduce-scattered in one transfer only if that cuts the same shards.
    """

    def __init__(self, dispatch: Dispatch, by_method: Callable[[str], Communicator], literal: LiteralPath) -> None:
        super().__init__(dispatch, by_method)
        self._literal = literal

    @property
    def methods(self) -> tuple[Method, ...]:
        """The method of all phases, or the chain of them."""
        return self._literal.chain

    def schedule_for(
        self, collective: Collective, elements: int, itemsize: int, op: Operator = Operator.ADD
    ) -> Schedule:
        """The schedule of a collective of ``elements``, to print, draw or price."""
        return self._literal.schedule_for(collective, elements, itemsize, op)


class LiteralShards:
    """Shards as the step programs of ``literal`` cut them."""

    def __init__(self, literal: LiteralPath, group: Group) -> None:
        self._literal, self._group = literal, group

    def fragment(self, elements: int, dtype: np.dtype[Any], op: str) -> int:
        """Elements that one member owns after a reduce-scatter of ``elements``, padding included."""
        return self._literal.fragment(elements, dtype, Operator.parse(op, dtype))

    def packs(self, widths: list[int], dtype: np.dtype[Any], op: str) -> bool:
        """Whether the packed tensor is cut into the same fragments as the tensors of the list."""
        width = sum(widths)
        single = self._literal.fabric.ipus_per_replica == 1
        return single and self.fragment(self._group.size * width, dtype, op) == width

    def keep_own(self, x: np.ndarray, out: np.ndarray) -> None:
        """Run a program without exchanges."""
        self._literal.run(Request(Collective.REDUCE_SCATTER, Operator.LOCAL, x.dtype, x.shape[1]), x, out)


def _part_of_chain(chain: tuple[Method, ...], collective: Collective) -> tuple[Method, ...]:
    """The part of an all-reduce chain that applies to ``collective``: the first half scatters, the second gathers."""
    half = len(chain) // 2
    if collective is Collective.ALL_REDUCE or (half == 0 and collective in _RINGS):
        return chain
    if collective in _RINGS:
        return chain[:half] if collective is Collective.REDUCE_SCATTER else chain[-half:]
    return (Method.AUTO,)


def _local_or_add(op: Operator) -> Operator:
    """The operator as far as a schedule depends on it: only LOCAL differs."""
    return op if op is Operator.LOCAL else Operator.ADD


def _travelling(request: Request) -> np.dtype[Any]:
    """The dtype of partial results: wider than the tensor if they would round or wrap."""
    half = request.dtype.itemsize == 2
    if request.operator in _SUMS and (half or request.operator is Operator.MEAN):
        return sum_dtype(request.dtype)
    return request.dtype
