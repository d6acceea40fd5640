"""TracedCalls: records the collectives of a process group as spans, for a process whose trace is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.reductions import name_of
from gcl.torch.several_hosts.two_levels import SeveralHosts
from popdist_py import trace
from popdist_py.trace import Category, Recorder

#: Names of collectives in PyTorch's profiler, and in traces.
_NAMES = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}


def traced_calls(group: HostGroup | SeveralHosts) -> TracedCalls | None:
    """The recorder of the collectives of a rank of ``group``; None if this process records no trace."""
    recorder = trace.recorder()
    return None if recorder is None else TracedCalls(recorder, group)


class TracedCalls:
    """Spans with kind, bytes, operator, group and method; the value is the call's place among its group's.

    All ranks of a group make the same calls in the same order, so the spans of one call have the same value.
    """

    def __init__(self, recorder: Recorder, group: HostGroup | SeveralHosts) -> None:
        self._recorder = recorder
        self._about = {"transport": group.transport, "replicas": 1, "method": group.method}

    def recorded(
        self,
        call: str,
        collective: Callable[[], None],
        inputs: Sequence[torch.Tensor],
        opts: Any,
        group: str,
        index: int,
    ) -> Callable[[], None]:
        """``collective``, wrapped to record itself when it runs, as call ``index`` of the process group ``group``."""
        name = self._recorder.name(
            _NAMES.get(call, call),
            Category.COLLECTIVES,
            **self._about,
            communicator=f"torch {group}",
            group=f"process group {group}",
            bytes=sum(tensor.nbytes for tensor in inputs),
            operator=name_of(opts.reduceOp).lower() if hasattr(opts, "reduceOp") else "",
        )

        def run() -> None:
            with self._recorder.span(name, value=index):
                collective()

        return run
