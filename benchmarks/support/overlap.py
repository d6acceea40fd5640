"""Overlap: the fraction of DDP's all-reduces that runs before the backward pass ends, from their time stamps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ipu_emu.trace import read_process
from popdist_py import trace
from popdist_py.trace import SUFFIX

__all__ = ["PASSES", "hidden_parts", "passes", "unreduced"]

#: Seconds of a pause in a backward pass, longer than an all-reduce of a layer.
PAUSE = 0.02
Call = Callable[[], object]
Span = tuple[float, float]


class Pause(torch.autograd.Function):
    """The identity in the forward pass; a pause in the backward pass, as if gradients came from a device."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        sleep(PAUSE)
        return gradient


class Layers(nn.Module):
    """Four layers of 16 MiB; ``pauses``: pause after the gradients of each, so that the cores are free."""

    def __init__(self, *, pauses: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(4))
        self._pauses = pauses

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(Pause.apply(x) if self._pauses else x)
        return x


#: Backward passes: whether they pause, and the number of samples, which determines their length.
PASSES = {"backward pass that pauses": (True, 4), "backward pass that computes": (False, 64)}


def unreduced(_, bucket):  # DDP refuses annotations that are text
    """A hook of DDP that exchanges nothing."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _wrapped(name: str, group: dist.ProcessGroup) -> tuple[DistributedDataParallel, torch.Tensor]:
    pauses, samples = PASSES[name]
    model = DistributedDataParallel(
        Layers(pauses=pauses),
        process_group=group,
        bucket_cap_mb=1,
        gradient_as_bucket_view=True,
        broadcast_buffers=False,
    )
    return model, torch.randn(samples, 2048, requires_grad=True)


def _pass(model: nn.Module, x: torch.Tensor) -> Call:
    def run() -> None:
        model.zero_grad(set_to_none=False)
        model(x).sum().backward()

    return run


def _in_turn(name: str, group: dist.ProcessGroup) -> Call:
    """Run the pass without all-reduces, then the all-reduces."""
    model, x = _wrapped(name, group)
    model.register_comm_hook(None, unreduced)
    backward = _pass(model, x)

    def run() -> None:
        backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)

    return run


def passes(name: str, groups: dict[str, dist.ProcessGroup]) -> dict[str, Call]:
    """Forward and backward passes of DDP: on each back end, without all-reduces, and with them after the pass."""
    without, x = _wrapped(name, groups["gcl"])
    without.register_comm_hook(None, unreduced)
    return {
        **{backend: _pass(*_wrapped(name, group)) for backend, group in groups.items()},
        "no all-reduce": _pass(without, x),
        **{f"{backend} in turn": _in_turn(name, group) for backend, group in groups.items()},
    }


class _Stamps:
    """The start and end of the all-reduces of a pass, and the time of the last gradient."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.end = 0.0
        self.spans: list[Span] = []

    def hook(self, _, bucket):  # DDP refuses annotations that are text
        """A hook of DDP that records the start and end of an all-reduce."""
        since = perf_counter()

        def complete(future):
            self.spans.append((since, perf_counter()))
            return future.value()[0]

        return dist.all_reduce(bucket.buffer(), group=self._group, async_op=True).get_future().then(complete)

    def computed(self, _: torch.Tensor) -> None:
        """Record the time of a gradient."""
        self.end = perf_counter()


def _part_before(end: float, spans: list[Span]) -> float:
    """The fraction, before ``end``, of the time in which any of ``spans`` runs."""
    before = after = reached = 0.0
    for since, until in sorted(spans):
        low = max(since, reached)
        reached = max(reached, until)
        before += max(0.0, min(until, end) - low)
        after += max(0.0, until - max(low, end))
    return before / (before + after)


@contextmanager
def _traced() -> Iterator[Callable[[], list[Span]]]:
    """Record collectives of groups created in the block; yield a function that returns the spans of all-reduces."""
    with tempfile.TemporaryDirectory() as folder:
        trace.start(folder)

        def spans() -> list[Span]:
            (file,) = Path(folder).glob(f"*{SUFFIX}")
            recorded = read_process(file)
            names = [number for number, name in recorded.names.items() if name.name == "all_reduce"]
            rows = [row for row in recorded.records if row["name"] in names]
            return [(1e-9 * int(row["begin"]), 1e-9 * int(row["end"])) for row in rows]

        try:
            yield spans
        finally:
            trace.stop()


def hidden_parts(name: str, backend: str, steps: int) -> list[float]:
    """The fraction of the all-reduces of ``backend`` before the backward pass ended, in each of ``steps`` passes.

    gcl records when an all-reduce starts, which may be later than its call; with gloo it is assumed to start with its
    call.
    """
    parts = []
    with _traced() as recorded:
        group = dist.new_group(backend=backend)
        model, x = _wrapped(name, group)
        stamps = _Stamps(group)
        model.register_comm_hook(None, stamps.hook)
        for tensor in (*model.parameters(), x):
            tensor.register_post_accumulate_grad_hook(stamps.computed)
        run = _pass(model, x)
        for _ in range(steps + 2):
            dist.barrier()
            stamps.spans.clear()
            since = perf_counter()
            run()
            spans = recorded() if backend == "gcl" else stamps.spans
            parts.append(_part_before(stamps.end, [span for span in spans if span[0] >= since]))
    return parts[2:]
