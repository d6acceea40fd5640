"""Request: the arguments of a collective that must be equal on all ranks: operator, element type, size, root."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gcl.core.operators import CODES, Operator

__all__ = ["COLLECTIVE_CODES", "REDUCING", "SHARED_ALL_GATHER", "Collective", "Request", "begun_here", "call_site"]

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

#: Longest description of a call in a message, in characters; lists may have many tensors.
_LONGEST = 400

R = TypeVar("R")

#: Call site of a collective that runs in a Runner's thread; "" in threads of the program.
_begun_at: ContextVar[str] = ContextVar("_begun_at", default="")


class Collective(StrEnum):
    """The collectives that move tensors."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"


#: The collectives that combine values.
REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
#: The number by which compiled kernels know each collective; None is a barrier.
COLLECTIVE_CODES: dict[Collective | None, int] = {
    None: 0,
    Collective.ALL_REDUCE: 1,
    Collective.REDUCE_SCATTER: 2,
    Collective.ALL_GATHER: 3,
    Collective.BROADCAST: 4,
    Collective.ALL_TO_ALL: 5,
}
#: The number of an all-gather into a tensor that all ranks of a host share.
SHARED_ALL_GATHER = 6


def call_site() -> str:
    """File and line of the program that is calling: the first one outside this package."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def begun_here(collective: Callable[[], R]) -> Callable[[], R]:
    """``collective`` for another thread, such that its errors name the current call site."""
    context = copy_context()
    context.run(_begun_at.set, call_site())
    return lambda: context.run(collective)


@dataclass(frozen=True, eq=False)
class Request:
    """``count`` elements of ``dtype`` per replica go in; ``root`` is an index in the group (broadcast).

    ``collective`` is None for a barrier. ``detail`` describes what else must be equal on all ranks: the shape of the
    tensors, if not a vector. ``shared``: an all-gather writes to one tensor that the ranks of a host share.
    """

    collective: Collective | None
    operator: Operator
    dtype: np.dtype[Any]
    count: int
    root: int = 0
    detail: str = ""
    shared: bool = False

    @property
    def code(self) -> int:
        """The number by which compiled kernels know the collective."""
        return SHARED_ALL_GATHER if self.shared else COLLECTIVE_CODES[self.collective]

    def __str__(self) -> str:
        if self.collective is None:
            return self.detail or "barrier"
        name = f"{self.collective}_shared" if self.shared else str(self.collective)
        detail = {
            Collective.ALL_REDUCE: f"{self.operator}, ",
            Collective.REDUCE_SCATTER: f"{self.operator}, ",
            Collective.BROADCAST: f"root {self.root}, ",
        }.get(self.collective, "")
        divided = f" as {self.detail}" if self.detail else ""
        return f"{name}({detail}{self.count} x {self.dtype}{divided})"

    def with_call_site(self, remark: str = "") -> str:
        """The description of the call, ``remark``, and the file and line of the caller."""
        said = str(self)
        if len(said) > _LONGEST:
            said = f"{said[: _LONGEST // 2]} ... {said[-_LONGEST // 2 :]}"
        return f"{said}{remark} at {_begun_at.get() or call_site()}"

    @cached_property
    def signature(self) -> int:
        """Hash of the call, equal on all ranks that make the same call; others collide with probability 2^-63."""
        return int.from_bytes(blake2b(str(self).encode(), digest_size=8).digest()) >> 1

    def resized(self, count: int) -> Request:
        """The same for ``count`` elements."""
        return replace(self, count=count)

    def key(self, x: np.ndarray, out: np.ndarray) -> tuple[object, ...]:
        """The key under which a prepared call on these two arrays is kept."""
        return (self.code, self.operator, self.root, id(x), id(out))

    def words(self, in_offset: int, out_offset: int, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The call as int64 words for kernels, in the order of ``rank_table``; offset -1: outside the segment."""
        what = [self.code, CODES[self.operator], self.count, in_offset, out_offset]
        how = [self.dtype.itemsize, self.root, self.signature]
        return np.array([*what, *how, x.ctypes.data, out.ctypes.data], np.int64)
