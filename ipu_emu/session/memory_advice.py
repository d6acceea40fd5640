"""Memory advice: the changes of a program that would make it fit its IPUs, in the words of the user's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ipu_emu.compiler.delayed_reports import DelayedReports
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.tensor_locations import LocationRule
from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.pipeline import CompileState, lowered
from ipu_emu.compiler.placement.placement_options import PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.hardware import Device
from ipu_emu.session.footprint import MemoryNeed, memory_need, streaming_memory_of
from ipu_emu.session.memory_remedies import Change, Remedies, RemedyKind, find_remedies

#: The most IPUs that a replica may have.
_WIDEST = 16
_OFF_CHIP = {
    RemedyKind.STATES_OFF_CHIP: "states",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "accumulators",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "activations",
    RemedyKind.WEIGHTS_OFF_CHIP: "weights",
}


@dataclass(frozen=True)
class MemoryRequest:
    """A variant of a program: ``halves`` converts its model to FLOAT16, ``divisor`` divides the micro-batch size."""

    options: CompileOptions
    halves: bool = False
    divisor: int = 1


@dataclass(frozen=True)
class MemoryAdvice:
    """How an interface describes each kind of change, and how it makes the variants of a program.

    ``words``     text by kind, with {divisor} and {factor} of a micro-batch, and {ipus} of a replica; other kinds are
                  not tried
    ``variant``   the compiler's state of a variant before its first pass
    ``report``    takes the name of each variant that is tried, once it takes long
    ``further``   advice that cannot be tried
    """

    words: Mapping[RemedyKind, str]
    variant: Callable[[MemoryRequest], CompileState]
    report: Callable[[str], None] | None = None
    further: str = ""

    def remedies(self, step: CompileState, device: Device, now: MemoryNeed, *, forward: bool = False) -> Remedies:
        """Search for changes with which ``step`` fits, which now needs ``now``, ``forward`` with its forward pass."""
        changes = list(self._changes(step, streaming=bool(streaming_memory_of(device))))
        need = partial(self._need, device, forward)
        reports = DelayedReports() if self.report is None else DelayedReports(self.report)
        with reports as report:
            request = MemoryRequest(step.options)
            remedies = find_remedies(request, changes, need, now=now, progress=report)
        return replace(remedies, further=self.further)

    def _need(self, device: Device, forward: bool, request: MemoryRequest) -> MemoryNeed:
        """Compile a variant, and return the memory that it needs."""
        state = self.variant(request)
        forward_program = lowered(state.forward_only) if forward else None
        need = memory_need(lowered(state), device, forward_program)
        if need is None:
            raise EmulatorError("only devices with a memory limit look for remedies")
        return need

    def _changes(self, step: CompileState, *, streaming: bool) -> Iterator[Change[MemoryRequest]]:
        """Yield the changes that may save memory; with ``streaming`` the IPUs have Streaming Memory."""
        options, graph = step.options, step.graph
        training = options.training is not None
        if training and options.replicas > 1 and not options.locations.states.location.sharded:
            yield from self._change(RemedyKind.STATES_SHARDED, partial(_located, field="states", sharded=True))
        for kind, field in _OFF_CHIP.items() if streaming and training else ():
            needed = field != "accumulators" or options.step.accumulation > 1
            if needed and not getattr(options.locations, field).location.off_chip:
                yield from self._change(kind, partial(_located, field=field, off_chip=True))
        if training:
            yield from self._smaller_batches(options, [t.shape[0] for t in graph.with_role(Role.INPUT) if t.shape])
        if RemedyKind.FLOAT16 in self.words and any(t.dtype is FLOAT for t in graph.with_role(Role.WEIGHT)):
            yield Change(RemedyKind.FLOAT16, self.words[RemedyKind.FLOAT16], partial(replace, halves=True))
        if training and options.recomputation is Recomputation.NONE:
            yield from self._change(RemedyKind.RECOMPUTE, partial(replace, recomputation=Recomputation.STANDARD))
        ipus = 2 * options.placement.ipus
        while ipus <= _WIDEST:
            spread = PlacementOptions(PlacementMode.AUTO, ipus, (1.0,) * ipus)
            yield from self._change(RemedyKind.MORE_IPUS, partial(replace, placement=spread), ipus=ipus)
            ipus *= 2

    def _change(
        self, kind: RemedyKind, change: Callable[[CompileOptions], CompileOptions], **values: int
    ) -> Iterator[Change[MemoryRequest]]:
        if kind in self.words:
            advice = self.words[kind].format(**values)
            yield Change(kind, advice, lambda request: replace(request, options=change(request.options)))

    def _smaller_batches(self, options: CompileOptions, batches: list[int]) -> Iterator[Change[MemoryRequest]]:
        """Yield micro-batches of a half, a quarter and so on, if the first dimensions of all inputs allow them."""
        divisor = 2
        while batches and RemedyKind.MICRO_BATCH in self.words and all(size % divisor == 0 for size in batches):
            factor = divisor * options.step.accumulation
            yield Change(
                RemedyKind.MICRO_BATCH,
                self.words[RemedyKind.MICRO_BATCH].format(divisor=divisor, factor=factor),
                partial(_with_batch, divisor=divisor, factor=factor),
            )
            divisor *= 2


def _located(options: CompileOptions, *, field: str, **location: Any) -> CompileOptions:
    rule: LocationRule = getattr(options.locations, field)
    changed: Any = {field: replace(rule, location=replace(rule.location, **location))}
    return replace(options, locations=replace(options.locations, **changed))


def _with_batch(request: MemoryRequest, *, divisor: int, factor: int) -> MemoryRequest:
    step = replace(request.options.step, accumulation=factor)
    return replace(request, options=replace(request.options, step=step), divisor=divisor)
