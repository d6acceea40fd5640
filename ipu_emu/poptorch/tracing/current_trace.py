"""Current trace: the trace that runs in this thread, for the functions that a program calls in forward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ipu_emu.poptorch.graph_writer import GraphWriter


class RunningTrace(Protocol):
    """The part of a trace that functions in forward use."""

    writer: GraphWriter
    training: bool
    multi_conv: bool
    overlaps: list[str]
    outer_scopes: list[str]

    def mark(self, tensor: torch.Tensor) -> None:
        """Record a loss."""

    def convolutions(self) -> int:
        """The number of convolutions so far."""

    def composite(self, name: str, arguments: dict[str, Any], aside: Callable[[], Any]) -> Any:
        """Record one op; ``aside`` computes its results on the host."""


class _Current(threading.local):
    trace: RunningTrace | None = None


CURRENT = _Current()


def current_trace() -> RunningTrace | None:
    """Return the trace that runs in this thread."""
    return CURRENT.trace


def intercepted(name: str, arguments: dict[str, Any], aside: Callable[[], Any]) -> Any:
    """Record an op of PopTorch while a trace runs; else return the result of ``aside`` on the host."""
    trace = CURRENT.trace
    return aside() if trace is None else trace.composite(name, arguments, aside)
