"""Memory changes: the flags of a command with which a model may take less memory, as changes of its request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.hardware import System
from ipu_emu.program.clock.machine import WIDEST
from ipu_emu.session.memory_remedies import Change, RemedyKind

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.compile_model import CompileRequest
    from ipu_emu.predict.job import Job

Request = TypeVar("Request", "CompileRequest", "Job")

_OFF_CHIP = {
    RemedyKind.STATES_OFF_CHIP: "states",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "accumulators",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "activations",
    RemedyKind.WEIGHTS_OFF_CHIP: "weights",
}


def memory_changes(
    request: Request, system: System, *, batch_is_free: bool, is_float: bool, recompute: object
) -> Iterator[Change[Request]]:
    """Yield the flags that were not given; those for training only if the request is for training.

    ``recompute`` is the value of its field that recomputes activations.
    """
    has_states = request.training and OPTIMISERS[request.optimiser].states > 0
    if has_states and request.replicas > 1 and "states" not in request.shared:
        yield _off_or_shared(RemedyKind.STATES_SHARDED, "shared", "states")
    for kind, what in _OFF_CHIP.items() if system.generation.streaming_memory else ():
        there = {"states": has_states, "accumulators": request.training and request.accumulation > 1}
        if there.get(what, request.training) and what not in request.off_chip:
            yield _off_or_shared(kind, "off_chip", what)
    if batch_is_free:
        yield from _smaller_batches(request)
    if is_float:
        yield Change(RemedyKind.FLOAT16, "--dtype float16", partial(replace, dtype="float16"))
    if request.training and not request.recompute:
        yield Change(RemedyKind.RECOMPUTE, "--recompute", partial(replace, recompute=recompute))
    yield from _more_ipus(request, min(WIDEST, system.ipus // request.replicas))


def _off_or_shared(kind: RemedyKind, field: str, what: str) -> Change[Any]:
    flag = f"--{field.replace('_', '-')} {what}"
    return Change(kind, flag, lambda request: replace(request, **{field: (*getattr(request, field), what)}))


def _smaller_batches(request: Request) -> Iterator[Change[Request]]:
    """Yield micro-batches of a half, a quarter and so on, with the same number of samples per weight update."""
    batch, accumulation = request.batch, request.accumulation
    while batch % 2 == 0:
        batch, accumulation = batch // 2, accumulation * 2
        advice = f"--batch {batch} --accumulation {accumulation}"
        yield Change(RemedyKind.MICRO_BATCH, advice, partial(replace, batch=batch, accumulation=accumulation))


def _more_ipus(request: Request, most: int) -> Iterator[Change[Request]]:
    ipus = 2 * request.ipus
    while ipus <= most:
        yield Change(RemedyKind.MORE_IPUS, f"--ipus {ipus}", partial(replace, ipus=ipus))
        ipus *= 2
