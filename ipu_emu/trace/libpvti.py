"""libpvti: the names of PopVision's instrumentation library, for programs that mark their own work with it.

    channel = libpvti.createTraceChannel("training")
    with libpvti.Tracepoint(channel, "epoch"):
        ...

Marks are spans of the process's trace, counters for the series of graphs. PopVision's .pvti files are not written:
their format is not published; ``ipu-emu report --perfetto FILE`` writes one that other viewers read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from popdist_py import trace

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class TraceChannel:
    """A group of tracepoints."""

    name: str


def createTraceChannel(name: str) -> TraceChannel:
    """A channel with a name, which labels its tracepoints."""
    return TraceChannel(name)


class _Open(threading.local):
    """The tracepoints of this thread that ``begin`` opened, by channel and label."""

    def __init__(self) -> None:
        self.spans: dict[tuple[str, str], list[Any]] = {}


class Tracepoint:
    """A context manager that marks a block; ``begin`` and ``end`` mark an interval of one thread."""

    _open = _Open()

    def __init__(self, channel: TraceChannel, label: str) -> None:
        self._span = trace.span(label, channel=channel.name)

    def __enter__(self) -> Tracepoint:
        self._span.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, traceback)

    @classmethod
    def begin(cls, channel: TraceChannel, label: str) -> None:
        """Begin an interval."""
        span = trace.span(label, channel=channel.name)
        span.__enter__()
        cls._open.spans.setdefault((channel.name, label), []).append(span)

    @classmethod
    def end(cls, channel: TraceChannel, label: str) -> None:
        """End the innermost open interval with this channel and label, if there is one."""
        spans = cls._open.spans.get((channel.name, label))
        if spans:
            spans.pop().__exit__(None, None, None)


def instrument_fn(channel: TraceChannel) -> Callable[[_F], _F]:
    """A decorator: each call of the function is a tracepoint with its name."""

    def decorated(function: _F) -> _F:
        return trace.span(function.__qualname__, channel=channel.name)(function)

    return decorated


def instrument(target: object, methods: Iterable[str], channel: TraceChannel) -> None:
    """Make each call of these methods of an object a tracepoint."""
    for name in methods:
        method = getattr(target, name)

        @wraps(method)
        def marked(*arguments: Any, _method: Any = method, _name: str = name, **named: Any) -> Any:
            with Tracepoint(channel, _name):
                return _method(*arguments, **named)

        setattr(target, name, cast(Any, marked))


class Series:
    """A series of a graph."""

    def __init__(self, graph: str, name: str) -> None:
        self._name = f"{graph}: {name}"

    def add(self, value: float) -> None:
        """Record the current value."""
        trace.counter(self._name, float(value))


class Graph:
    """A graph of values over time, with its unit."""

    def __init__(self, name: str, unit: str = "") -> None:
        self._name = f"{name} [{unit}]" if unit else name

    def addSeries(self, name: str) -> Series:
        """A new series."""
        return Series(self._name, name)
