"""Scopes: the placement and attributes of ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope

from ipu_emu.session.options.without_effect import say_without_effect
from ipu_emu.tensorflow.trace.devices import device_number, on_ipu
from ipu_emu.tensorflow.trace.function_trace import current_trace

__all__ = [
    "frontend_attribute", "ipu_jit_scope", "ipu_scope", "ipu_shard", "outside_compilation_scope", "partials_type",
    "stochastic_rounding",
]  # fmt: skip


@contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Place ops on an IPU device, and use resource variables."""
    number = device_number(device)
    if number is None:
        raise ValueError(f"ipu_scope takes the name of an IPU such as /device:IPU:0, not {device!r}")
    with on_ipu(number), variable_scope.variable_scope("", use_resource=True, reuse=variable_scope.AUTO_REUSE):
        yield


@contextmanager
def ipu_shard(index: int | Iterable[int]) -> Iterator[None]:
    """Place ops on a shard, or on several."""
    chosen = (index,) if isinstance(index, int) else tuple(index)
    if any(not isinstance(shard, int) or shard < 0 for shard in chosen):
        raise ValueError(f"ipu_shard takes the numbers of shards, from 0 on, not {index!r}")
    trace = current_trace()
    first = trace.position() if trace is not None else 0
    try:
        yield
    finally:
        if trace is not None:
            trace.shards.append((first, trace.position(), chosen))


@contextmanager
def ipu_jit_scope(ipu_scope: Any) -> Iterator[None]:
    """Accept a scope without effect: ``compile`` determines what is compiled."""
    say_without_effect("The scope", ["ipu_jit_scope"])
    yield


@contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: str | None = None) -> Iterator[None]:
    """Accept an attribute of ops, which a warning names."""
    say_without_effect("The attribute of ops", [attribute_name])
    yield


@contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """Accept a rounding mode without effect: the configuration's mode applies to all ops."""
    say_without_effect("The scope", ["stochastic_rounding"])
    yield


@contextmanager
def partials_type(override: Any) -> Iterator[None]:
    """Accept a type of partial sums without effect: sums of FLOAT16 are in FLOAT."""
    say_without_effect("The scope", ["partials_type"])
    yield


@contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Accept ops that would run on the host: they run on the emulated device, with the same results."""
    trace = current_trace()
    if trace is None:
        raise ValueError("outside_compilation_scope is only allowed in compiled functions")
    if trace.outside:
        raise ValueError("Illegal nesting of outside_compilation_scope")
    trace.outside = True
    try:
        with ops.name_scope(name):
            yield
    finally:
        trace.outside = False
