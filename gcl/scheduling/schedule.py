"""Schedule: the sequence of step programs that carries out one collective on a fabric.

    all-reduce in a domain of R     reduce-scatter, all-gather
    all-reduce over L domains       reduce-scatter of S          inside each domain, IPU-Links
                                    reduce-scatter of S/R        across domains, GW-Links, same place in each
                                    all-gather of S/(R L)        across domains
                                    all-gather of S/R            inside each domain
    reduce-scatter, all-gather      the first two, the last two

The two steps in the middle are the all-reduce of the shard, the second of GCL's three phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gcl.core.argument_checks import check_whole
from gcl.core.groups import Group
from gcl.core.layout import PlainPadding, spread
from gcl.core.operators import Operator
from gcl.core.request import REDUCING, Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric
from gcl.scheduling.methods import all_to_all, broadcast, local
from gcl.scheduling.methods.method import METHODS, Method, method_chain
from gcl.scheduling.methods.ring_stream import RingTrack
from gcl.scheduling.options import Options
from gcl.scheduling.phases import Level, PhaseBuilder, ProgramPhase, levels
from gcl.scheduling.program.interpreter import OPERATIONS, run
from gcl.scheduling.program.step_program import StepProgram
from popdist_py.messages.suggestion import did_you_mean

_SCATTER, _GATHER = Collective.REDUCE_SCATTER, Collective.ALL_GATHER
_STRAIGHT = "sent directly to each partner"


@dataclass(frozen=True)
class Schedule:
    """The ``phases`` of ``collective`` over ``group``, for ``elements`` per replica of ``itemsize`` bytes each."""

    collective: Collective
    fabric: Fabric
    group: Group
    elements: int
    itemsize: int
    phases: tuple[ProgramPhase, ...]
    options: Options = field(default_factory=Options)

    @property
    def programs(self) -> list[StepProgram]:
        """The step programs in the order in which they run."""
        return [phase.program for phase in self.phases]

    def bytes_sent(self, replica: int) -> int:
        """Bytes that ``replica`` sends, padding included."""
        return sum(program.elements_sent(replica) for program in self.programs) * self.itemsize


@dataclass(frozen=True)
class _Inputs:
    """The arguments of ``schedule``, checked."""

    fabric: Fabric
    group: Group
    elements: int
    itemsize: int
    chain: tuple[Method, ...]
    root: int
    options: Options

    @property
    def tensor(self) -> tuple[int, ...]:
        """Elements per IPU."""
        return spread(self.elements, self.fabric.ipus_per_replica)

    def builder(self, total: int) -> PhaseBuilder:
        return PhaseBuilder(self.fabric, self.itemsize, self.chain, total, self.options)

    def direct(self) -> PhaseBuilder:
        """The builder for collectives in which every replica sends directly to its partners."""
        if self.chain not in ((Method.AUTO,), (Method.BROADCAST,)):
            raise ArgumentError(
                f"method {', '.join(self.chain)} does not apply: this collective sends directly to each partner; "
                "use auto"
            )
        return self.builder(1)


def schedule(
    collective: Collective,
    fabric: Fabric,
    elements: int,
    *,
    itemsize: int = 4,
    group: Group | None = None,
    methods: str | Sequence[str] = Method.AUTO,
    op: str = Operator.ADD,
    root: int = 0,
    options: Options | None = None,
) -> Schedule:
    """The schedule of ``collective`` over ``group`` (default: all replicas) on ``fabric``.

    ``elements``: per replica, of the whole tensor (for an all-gather, of the shard); spread evenly over its IPUs.
    ``methods`` (a list of names, or names separated by commas): one for all phases, one for
    reduce-scatters and one for all-gathers, or one per phase.
    ``root``: index in the group (broadcast). ``options`` (default: those of GCL) apply except for their method.
    Raises ArgumentError if the arguments contradict each other.
    """
    if collective not in list(Collective):
        raise ArgumentError(
            f"collective {collective!r} is unknown; use {', '.join(Collective)}{did_you_mean(collective, Collective)}"
        )
    if not isinstance(fabric, Fabric):
        raise ArgumentError(f"fabric={fabric!r} is not valid; give a gcl.Fabric, such as gcl.Fabric(16)")
    if not isinstance(group, Group | None):
        raise ArgumentError(f"group={group!r} is not valid; give a gcl.Group, such as Group.consecutive(16, 4)")
    if not isinstance(options, Options | None):
        raise ArgumentError(f"options={options!r} is not valid; give gcl.Options")
    collective, group = Collective(collective), group or Group.all(fabric.replicas)
    if group.replicas != fabric.replicas:
        raise ArgumentError(f"the group is over {group.replicas} replicas, but the fabric has {fabric.replicas}")
    check_whole(elements, "elements")
    check_whole(itemsize, "itemsize", 1)
    check_whole(root, "root")
    op = Operator.parse(op)
    if op is Operator.LOCAL and collective is not _SCATTER:
        raise ArgumentError(f"{collective} has no operator local; only reduce_scatter has it")
    options = options or Options()
    job = _Inputs(fabric, group, elements, itemsize, method_chain(methods), root, options)
    build = _local if op is Operator.LOCAL else _BUILDERS[collective]
    return Schedule(collective, fabric, group, elements, itemsize, tuple(build(job)), options)


def interpret(schedule: Schedule, x: np.ndarray, op: str = Operator.ADD) -> np.ndarray:
    """Run every phase on ``x`` [replicas, elements] with ``interpreter``; return [replicas, results]."""
    name = Operator.parse(op, x.dtype)
    operation = OPERATIONS[name]
    reduces = schedule.collective in REDUCING and name is not Operator.LOCAL
    x = operation.prepare(x) if reduces else x
    for phase in schedule.phases:
        if phase.before is not None:
            x = phase.before.rearrange(x)
        x = run(phase.program, x, operation.combine)
        if phase.after is not None:
            x = phase.after.undo(x)
    return operation.finish(x, schedule.group.size) if reduces else x


def _all_reduce(job: _Inputs) -> list[ProgramPhase]:
    parts = levels(job.group, job.fabric)
    return _reduce_on(parts, job.builder(2 * len(parts)), job.tensor, 0)


def _reduce_on(parts: list[Level], builder: PhaseBuilder, tensor: tuple[int, ...], phase: int) -> list[ProgramPhase]:
    """Reduce-scatter on the first level, all-reduce the shard on the others, all-gather on the first level."""
    level, *rest = parts
    scatter = builder.method(_SCATTER, level, sum(tensor), phase)
    padding = PlainPadding(level.size, tensor, METHODS[scatter.method].splits)
    order = padding.arrangement()
    gather = builder.method(_GATHER, level, padding.shard, builder.total - 1 - phase)
    # methods that use several directions distribute half a fragment at a time
    reordered_over = level.size * (2 if max(METHODS[way.method].splits for way in (scatter, gather)) > 1 else 1)
    return [
        builder.ring(_SCATTER, level, padding.widths, scatter, before=order, reordered_over=reordered_over),
        *(_reduce_on(rest, builder, padding.widths, phase + 1) if rest else []),
        builder.ring(_GATHER, level, padding.widths, gather, after=order, reordered_over=reordered_over),
    ]


def _reduce_scatter(job: _Inputs) -> list[ProgramPhase]:
    first, *rest = levels(job.group, job.fabric)
    builder = job.builder(1 + len(rest))
    choice = builder.method(_SCATTER, first, job.elements, 0)
    padding = PlainPadding(job.group.size, job.tensor, METHODS[choice.method].splits)
    if not rest:
        return [builder.ring(_SCATTER, first, padding.widths, choice, before=padding.arrangement())]
    second = rest[0]
    again = builder.method(_SCATTER, second, second.size * padding.shard, 1)
    splits = max(METHODS[choice.method].splits, METHODS[again.method].splits)
    padding = PlainPadding(job.group.size, job.tensor, splits)
    wide = _times(second.size, padding.widths)
    order = PlainPadding(second.size, wide).arrangement()
    return [
        builder.ring(_SCATTER, first, wide, choice, before=padding.arrangement(second.size)),
        builder.ring(_SCATTER, second, padding.widths, again, before=order),
    ]


def _all_gather(job: _Inputs) -> list[ProgramPhase]:
    first, *rest = levels(job.group, job.fabric)
    builder, widths = job.builder(1 + len(rest)), job.tensor
    if not rest:
        return [builder.ring(_GATHER, first, widths, builder.method(_GATHER, first, job.elements, 0))]
    across, wide = rest[0], _times(rest[0].size, widths)
    outer = builder.method(_GATHER, across, job.elements, 0)
    inner = builder.method(_GATHER, first, sum(wide), 1)
    padding = PlainPadding(job.group.size, _times(job.group.size, widths))
    order = PlainPadding(across.size, wide).arrangement()
    return [
        builder.ring(_GATHER, across, widths, outer, after=order),
        builder.ring(_GATHER, first, wide, inner, after=padding.shard_order(across.size)),
    ]


def _local(job: _Inputs) -> list[ProgramPhase]:
    padding = PlainPadding(job.group.size, job.tensor)
    track = RingTrack(job.group, (tuple(range(job.group.size)),), padding.widths)
    program = job.direct().program(_SCATTER, "local", track, (job.group.size, 1), local.reduce_scatter)
    return [ProgramPhase(program, "no links", "operator local", before=padding.arrangement())]


def _all_to_all(job: _Inputs) -> list[ProgramPhase]:
    size = job.group.size
    if job.elements % size:
        raise ArgumentError(
            f"all_to_all of {job.elements} elements over {size} replicas: dimension 0 of the input "
            f"must be {size}, one slice per replica"
        )
    track = RingTrack(job.group, (), spread(job.elements // size, job.fabric.ipus_per_replica))
    program = job.direct().program(Collective.ALL_TO_ALL, "all_to_all", track, (size, size), all_to_all.all_to_all)
    return [ProgramPhase(program, _links(job), _STRAIGHT)]


def _broadcast(job: _Inputs) -> list[ProgramPhase]:
    if not 0 <= job.root < job.group.size:
        raise ArgumentError(f"root {job.root} is not a member of the group; use 0 to {job.group.size - 1}")
    track = RingTrack(job.group, (), job.tensor)
    generate = partial(broadcast.broadcast, root=job.root)
    program = job.direct().program(Collective.BROADCAST, "broadcast", track, (1, 1), generate)
    return [ProgramPhase(program, _links(job), _STRAIGHT)]


_BUILDERS: dict[Collective, Callable[[_Inputs], list[ProgramPhase]]] = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.ALL_GATHER: _all_gather,
    Collective.ALL_TO_ALL: _all_to_all,
    Collective.BROADCAST: _broadcast,
}


def _times(factor: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(factor * width for width in widths)


def _links(job: _Inputs) -> str:
    return " and ".join(level.links for level in levels(job.group, job.fabric))
