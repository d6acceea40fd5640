"""TracedDispatch: a dispatch that records every collective, for a process whose trace is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gcl.core.data_path import DataPath
from gcl.core.dispatch import Dispatch, ShardLayout
from gcl.core.groups import Group
from gcl.core.operators import Operator
from gcl.core.request import REDUCING, Collective, CollectiveCode, Request
from gcl.core.world import World
from gcl.errors import ArgumentError
from popdist_py import trace
from popdist_py.trace import Category, Recorder, Span

#: Returns the name of the method of a request.
MethodOf = Callable[[Request], str]

#: Names of the codes that are not collectives.
_SHARED = {CollectiveCode.SHARED_ALL_GATHER: Collective.ALL_GATHER}


def dispatch(
    path: DataPath,
    world: World,
    group: Group,
    shards: ShardLayout | None = None,
    method: MethodOf = lambda request: "direct",
) -> Dispatch:
    """A dispatch over ``path``; it records its calls, with their ``method``, if this process records a trace."""
    recorder = trace.recorder()
    if recorder is None:
        return Dispatch(path, world, group, shards)
    return TracedDispatch(recorder, path, world, group, shards, method)


class TracedDispatch(Dispatch):
    """Records each call as a span with its kind, bytes, group and method; its value is its place among all calls.

    All ranks of a communicator make the same calls in the same order, so the spans of one call on all ranks have the
    same value, and the names the same ``communicator``.
    """

    def __init__(
        self,
        recorder: Recorder,
        path: DataPath,
        world: World,
        group: Group,
        shards: ShardLayout | None,
        method: MethodOf,
    ) -> None:
        super().__init__(path, world, group, shards)
        self._recorder, self._method = recorder, method
        self._calls = 0
        self._about: dict[str, Any] = {
            "communicator": recorder.serial("communicator"),
            "group": str(group),
            "group_size": group.size,
            "group_stride": group.stride,
            "transport": path.name,
            "replicas": world.local,
        }
        self._names: dict[tuple[object, ...], int] = {}

    def repeat(self, code: int, op: str, x: object, out: object, root: int = 0) -> bool:
        """Repeat the call if it was prepared; return whether it was."""
        if self._runner is not None:
            self._runner.drain()
        span = self._span(code, op, x)
        span.__enter__()
        done = super().repeat(code, op, x, out, root)
        if done:
            span.__exit__(None, None, None)
            self._calls += 1
        else:
            span.cancel()
        return done

    def run(
        self,
        collective: Collective | None,
        op: str,
        x: np.ndarray,
        out: np.ndarray,
        root: int = 0,
        detail: str | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Make a call on checked tensors."""
        self.drain()
        code = CollectiveCode.BARRIER if collective is None else CollectiveCode[collective.name]
        span = self._span(code, op, x)
        self._calls += 1
        with span:
            super().run(collective, op, x, out, root, detail, shared=shared)

    def _span(self, code: int, op: str, x: object) -> Span:
        size = x.nbytes if isinstance(x, np.ndarray) else 0
        key = (code, op, size)
        name = self._names.get(key)
        if name is None:
            called = CollectiveCode(code).name.lower()
            about = {**self._about, "bytes": size, "operator": str(op), "method": self._method_of(code, op, x)}
            name = self._recorder.name(called, Category.COLLECTIVES, **about)
            self._names[key] = name
        return self._recorder.span(name, value=self._calls)

    def _method_of(self, code: int, op: str, x: object) -> str | None:
        """The method of a call; None for a barrier, and for a call that will be refused."""
        if code == CollectiveCode.BARRIER or not isinstance(x, np.ndarray):
            return None
        call_code = CollectiveCode(code)
        collective = _SHARED.get(call_code) or Collective[call_code.name]
        try:
            operator = Operator.parse(op, x.dtype) if collective in REDUCING else Operator.ADD
            return self._method(Request(collective, operator, x.dtype, x.size // self.world.local))
        except ArgumentError:
            return None
