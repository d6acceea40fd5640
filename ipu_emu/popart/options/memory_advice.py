"""Memory advice: the session options that would make a model fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import popdist_py
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.memory_remedies import Change, RemedyKind
from ipu_emu.compiler.memory.tensor_locations import LocationRule
from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.placement.placement_options import PlacementMode, PlacementOptions

__all__ = ["MemoryRequest", "memory_changes"]

#: The most IPUs that a replica may have.
_WIDEST = 16
_OFF_CHIP = {
    RemedyKind.STATES_OFF_CHIP: ("states", "optimizerState"),
    RemedyKind.ACCUMULATORS_OFF_CHIP: ("accumulators", "accumulator"),
    RemedyKind.ACTIVATIONS_OFF_CHIP: ("activations", "activation"),
    RemedyKind.WEIGHTS_OFF_CHIP: ("weights", "weight"),
}


@dataclass(frozen=True)
class MemoryRequest:
    """A variant of a session: ``halves`` converts its model to FLOAT16, ``divisor`` divides the micro-batch size."""

    options: CompileOptions
    halves: bool = False
    divisor: int = 1


def memory_changes(
    options: CompileOptions, *, streaming: bool, floats: bool, batches: tuple[int, ...]
) -> Iterator[Change[MemoryRequest]]:
    """Yield changes of options that may save memory.

    ``streaming``: the device has Streaming Memory. ``floats``: the model has FLOAT weights. ``batches`` are the first
    dimensions of the inputs.
    """
    training = options.training is not None
    if training and options.replicas > 1 and not options.locations.states.location.sharded:
        yield _changed(
            RemedyKind.STATES_SHARDED,
            "optimizerStateTensorLocationSettings.location.replicatedTensorSharding = ReplicatedTensorSharding.On",
            partial(_located, field="states", sharded=True),
        )
    for kind, (field, name) in _OFF_CHIP.items() if streaming and training else ():
        needed = field != "accumulators" or options.step.accumulation > 1
        if needed and not getattr(options.locations, field).location.off_chip:
            yield _changed(
                kind,
                f"{name}TensorLocationSettings.location.storage = TensorStorage.OffChip",
                partial(_located, field=field, off_chip=True),
            )
    if training:
        yield from _smaller_batches(options, batches)
    if floats:
        advice = "a model after GraphTransformer(model).convertFloatsToHalfs()"
        yield Change(RemedyKind.FLOAT16, advice, partial(replace, halves=True))
    if training and options.recomputation is Recomputation.NONE:
        yield _changed(
            RemedyKind.RECOMPUTE,
            "autoRecomputation = RecomputationType.Standard",
            partial(replace, recomputation=Recomputation.STANDARD),
        )
    yield from _more_ipus(options)


def _changed(
    kind: RemedyKind, advice: str, change: Callable[[CompileOptions], CompileOptions]
) -> Change[MemoryRequest]:
    return Change(kind, advice, lambda request: replace(request, options=change(request.options)))


def _located(options: CompileOptions, *, field: str, **location: Any) -> CompileOptions:
    rule: LocationRule = getattr(options.locations, field)
    changed: Any = {field: replace(rule, location=replace(rule.location, **location))}
    return replace(options, locations=replace(options.locations, **changed))


def _smaller_batches(options: CompileOptions, batches: tuple[int, ...]) -> Iterator[Change[MemoryRequest]]:
    """Yield micro-batches of a half, a quarter and so on, if the first dimensions of all inputs allow them."""
    divisor = 2
    while batches and all(size % divisor == 0 for size in batches):
        factor = divisor * options.step.accumulation
        yield Change(
            RemedyKind.MICRO_BATCH,
            f"a model for micro-batches of 1/{divisor} and accumulationFactor = {factor}",
            partial(_with_batch, divisor=divisor, factor=factor),
        )
        divisor *= 2


def _with_batch(request: MemoryRequest, *, divisor: int, factor: int) -> MemoryRequest:
    step = replace(request.options.step, accumulation=factor)
    return replace(request, options=replace(request.options, step=step), divisor=divisor)


def _more_ipus(options: CompileOptions) -> Iterator[Change[MemoryRequest]]:
    ipus = 2 * options.placement.ipus
    while ipus <= _WIDEST:
        device = (
            f"poprun-py --ipus-per-replica {ipus}" if popdist_py.isPopdistEnvSet() else f"{ipus} IPUs per replica"
        )
        spread = PlacementOptions(PlacementMode.AUTO, ipus, (1.0,) * ipus)
        yield _changed(
            RemedyKind.MORE_IPUS,
            f"virtualGraphMode = VirtualGraphMode.Auto with {device}",
            partial(replace, placement=spread),
        )
        ipus *= 2
