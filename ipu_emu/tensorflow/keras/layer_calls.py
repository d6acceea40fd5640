"""Layer calls: the layers that a model calls while it is traced, in order, and the ops of each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import ops


@dataclass
class LayerCall:
    """The call ``number`` of ``layer``: the ops from ``start`` up to but not including ``end``."""

    layer: Any
    number: int
    start: int
    end: int = -1


class _Watch:
    def __init__(self, model: Any) -> None:
        self.model, self.calls, self.inside, self.busy = model, list[LayerCall](), 0, False
        self.first = 0


_WATCH: ContextVar[_Watch | None] = ContextVar("watched model", default=None)


@contextmanager
def layer_calls(model: Any) -> Iterator[list[LayerCall]]:
    """Record the layers that ``model`` calls in the ``with`` block, without those that these layers call."""
    watch = _Watch(model)
    token = _WATCH.set(watch)
    try:
        yield watch.calls
    finally:
        _WATCH.reset(token)


@contextmanager
def called(layer: Any) -> Iterator[None]:
    """Record a call of ``layer`` around the ``with`` block, if calls are recorded."""
    watch = _WATCH.get()
    if watch is None or watch.busy:
        yield
    elif layer is watch.model:
        watch.first = watch.first if watch.inside else len(watch.calls)
        watch.inside += 1
        try:
            yield
        finally:
            watch.inside -= 1
    elif not watch.inside:
        yield
    else:
        number = sum(earlier.layer is layer for earlier in watch.calls[watch.first :])
        call = LayerCall(layer, number, _position())
        watch.calls.append(call)
        watch.busy = True
        try:
            yield
        finally:
            watch.busy, call.end = False, _position()


def _position() -> int:
    return len(ops.get_default_graph().get_operations())
