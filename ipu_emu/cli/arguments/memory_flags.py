"""Memory flags: the command-line options that may make a model fit its IPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.compiler.memory.memory_remedies import Change, MemoryNeed, Remedies, RemedyKind, find_remedies
from ipu_emu.hardware import System
from ipu_emu.models import CATALOGUE
from ipu_emu.program.clock.machine import WIDEST

__all__ = ["remedies"]

_OFF_CHIP = {
    RemedyKind.STATES_OFF_CHIP: "states",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "accumulators",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "activations",
    RemedyKind.WEIGHTS_OFF_CHIP: "weights",
}


def remedies(request: CompileRequest, system: System, now: MemoryNeed, progress: Callable[[str], None]) -> Remedies:
    """Return the flags that make ``request``, which needs ``now``, fit ``system``; each one is tried by compiling."""

    def need(other: CompileRequest) -> MemoryNeed:
        return other.compiled(system).need

    return find_remedies(request, list(_changes(request, system)), need, now=now, progress=progress)


def _changes(request: CompileRequest, system: System) -> Iterator[Change[CompileRequest]]:
    """Yield the flags that were not given; those for training only if the request is for training."""
    has_states = request.training and request.optimiser != "sgd"
    if has_states and request.replicas > 1 and "states" not in request.shared:
        yield _off_or_shared(RemedyKind.STATES_SHARDED, "shared", "states")
    for kind, what in _OFF_CHIP.items() if system.generation.streaming_memory else ():
        there = {"states": has_states, "accumulators": request.training and request.accumulation > 1}
        if there.get(what, request.training) and what not in request.off_chip:
            yield _off_or_shared(kind, "off_chip", what)
    if request.batch_is_free:
        yield from _smaller_batches(request)
    if request.model in CATALOGUE and request.dtype == "float32":
        yield Change(RemedyKind.FLOAT16, "--dtype float16", partial(replace, dtype="float16"))
    if request.training and not request.recompute:
        yield Change(RemedyKind.RECOMPUTE, "--recompute", partial(replace, recompute="Standard"))
    yield from _more_ipus(request, min(WIDEST, system.ipus // request.replicas))


def _off_or_shared(kind: RemedyKind, field: str, what: str) -> Change[CompileRequest]:
    flag = f"--{field.replace('_', '-')} {what}"
    return Change(kind, flag, lambda request: replace(request, **{field: (*getattr(request, field), what)}))


def _smaller_batches(request: CompileRequest) -> Iterator[Change[CompileRequest]]:
    """Yield micro-batches of a half, a quarter and so on, with the same number of samples per weight update."""
    batch, accumulation = request.micro_batch, request.accumulation
    while batch % 2 == 0:
        batch, accumulation = batch // 2, accumulation * 2
        advice = f"--batch {batch} --accumulation {accumulation}"
        yield Change(RemedyKind.MICRO_BATCH, advice, partial(replace, batch=batch, accumulation=accumulation))


def _more_ipus(request: CompileRequest, most: int) -> Iterator[Change[CompileRequest]]:
    ipus = 2 * request.ipus
    while ipus <= most:
        yield Change(RemedyKind.MORE_IPUS, f"--ipus {ipus}", partial(replace, ipus=ipus))
        ipus *= 2
