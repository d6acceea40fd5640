"""Request: one collective as every rank must call it: kind, operator, element type, size and root."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gcl.core.operators import CODES, Operator

__all__ = ["Kind", "Request", "begun_here", "call_site"]

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

#: Characters of a call in a message; lists may have many tensors.
_LONGEST = 400

R = TypeVar("R")

#: Call site of a collective that runs in a thread of ours, "" in the program's own threads.
_begun_at: ContextVar[str] = ContextVar("_begun_at", default="")


class Kind(IntEnum):
    """The collectives; kernels branch on the number."""

    BARRIER = 0
    ALL_REDUCE = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    BROADCAST = 4
    ALL_TO_ALL = 5
    ALL_GATHER_SHARED = 6


def call_site() -> str:
    """File and line of the program that is calling: the first one outside this package."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def begun_here(collective: Callable[[], R]) -> Callable[[], R]:
    """``collective``, to be run in another thread, as called from where the program is now."""
    context = copy_context()
    context.run(_begun_at.set, call_site())
    return lambda: context.run(collective)


@dataclass(frozen=True, eq=False)
class Request:
    """``count`` elements of ``dtype`` per replica go in; ``root`` is an index in the group (broadcast).

    ``detail`` is what else must be equal on all ranks, in words: how the elements are divided, if not one vector.
    """

    kind: Kind
    operator: Operator
    dtype: np.dtype[Any]
    count: int
    root: int = 0
    detail: str = ""

    def __str__(self) -> str:
        name = self.kind.name.lower()
        if self.kind is Kind.BARRIER:
            return self.detail or name
        detail = {
            Kind.ALL_REDUCE: f"{self.operator}, ",
            Kind.REDUCE_SCATTER: f"{self.operator}, ",
            Kind.BROADCAST: f"root {self.root}, ",
        }.get(self.kind, "")
        divided = f" as {self.detail}" if self.detail else ""
        return f"{name}({detail}{self.count} x {self.dtype}{divided})"

    def with_call_site(self, remark: str = "") -> str:
        """The same, a remark, and the line of the program that called."""
        said = str(self)
        if len(said) > _LONGEST:
            said = f"{said[: _LONGEST // 2]} ... {said[-_LONGEST // 2 :]}"
        return f"{said}{remark} at {_begun_at.get() or call_site()}"

    @cached_property
    def signature(self) -> int:
        """A number that is equal on all ranks if they make the same call, and else with a chance of 2^-63."""
        return int.from_bytes(blake2b(str(self).encode(), digest_size=8).digest()) >> 1

    def resized(self, count: int) -> Request:
        """The same for ``count`` elements."""
        return replace(self, count=count)

    def key(self, x: np.ndarray, out: np.ndarray) -> tuple[object, ...]:
        """Under which a call on these very tensors is kept."""
        return (self.kind, self.operator, self.root, id(x), id(out))

    def words(self, in_offset: int, out_offset: int, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The call as compiled code reads it (order of ``rank_table``); offset -1: not in the segment."""
        what = [self.kind, CODES[self.operator], self.count, in_offset, out_offset]
        how = [self.dtype.itemsize, self.root, self.signature]
        return np.array([*what, *how, x.ctypes.data, out.ctypes.data], np.int64)
