"""Request: the arguments of a collective that must be equal on all ranks: operator, element type, size, root."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from gcl.core.operators import Operator

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
#: Top modules of PyTorch's functions, and of what wraps those with a deprecated name.
_PYTORCH = ("torch", "typing_extensions", "warnings")

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


class CollectiveCode(IntEnum):
    """The number by which compiled kernels know a call."""

    BARRIER = 0
    ALL_REDUCE = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    BROADCAST = 4
    ALL_TO_ALL = 5
    SHARED_ALL_GATHER = 6  # into a tensor that all ranks of a host share


class Call(IntEnum):
    """Index of each word of a call as compiled kernels get it (``Request.words``)."""

    COLLECTIVE = 0  # a CollectiveCode
    COUNT = 1  # elements of one replica's input
    INPUT_OFFSET = 2  # bytes from the start of this rank's segment; -1: outside the segment
    OUTPUT_OFFSET = 3
    ITEMSIZE = 4  # bytes of an element
    ROOT = 5  # index in the group
    SIGNATURE = 6  # equal on all ranks that make the same call
    INPUT = 7  # address in this process
    OUTPUT = 8


def call_site() -> str:
    """File and line of the program that is calling: the first one outside this package, and outside of PyTorch."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_between(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_between(frame: FrameType) -> bool:
    """Whether ``frame`` is of this package, or of PyTorch, whose collectives run on it (gcl.torch)."""
    name = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename.startswith(_PACKAGE) or name.partition(".")[0] in _PYTORCH


def begun_here(collective: Callable[[], R]) -> Callable[[], R]:
    """``collective`` for another thread, such that its errors name the current call site."""
    context = copy_context()
    context.run(_begun_at.set, call_site())
    return lambda: context.run(collective)


def in_background() -> bool:
    """Whether the current thread runs a collective that was begun earlier, while the program computes."""
    return bool(_begun_at.get())


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
        """The number of the collective in compiled kernels."""
        if self.collective is None:
            return CollectiveCode.BARRIER
        return CollectiveCode.SHARED_ALL_GATHER if self.shared else CollectiveCode[self.collective.name]

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

    def key(self, x: np.ndarray, out: np.ndarray) -> tuple[object, ...]:
        """The key under which a prepared call on these two arrays is kept."""
        return (self.code, self.operator, self.root, id(x), id(out))

    def words(self, in_offset: int, out_offset: int, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The call as int64 words, one per ``Call``; offset -1: outside the segment."""
        words = {
            Call.COLLECTIVE: self.code,
            Call.COUNT: self.count,
            Call.INPUT_OFFSET: in_offset,
            Call.OUTPUT_OFFSET: out_offset,
            Call.ITEMSIZE: self.dtype.itemsize,
            Call.ROOT: self.root,
            Call.SIGNATURE: self.signature,
            Call.INPUT: x.ctypes.data,
            Call.OUTPUT: out.ctypes.data,
        }
        return np.array([words[word] for word in Call], np.int64)
