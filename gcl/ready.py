"""ReadyCall: one collective on two certain tensors, checked and described once, so that making it again is quick."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.calls import Request
from gcl.copies import copy_bytes
from gcl.jit import bound

__all__ = ["BROKEN", "DONE", "MISMATCH", "STAGED", "WAITING", "Nearby", "ReadyCall"]

#: What a kernel returns: it is complete; call it again; the ranks called different collectives; some rank's tensor
#: is private, so that the rest is the staged kernel's; another process's memory could not be reached.
DONE, WAITING, MISMATCH, STAGED, BROKEN = range(5)


@dataclass(frozen=True)
class ReadyCall:
    """``run`` returns DONE, or what is left for the path's ``finish``; the tensors may be gone by then.

    ``rest`` goes on where ``run`` returned STAGED.
    """

    run: Callable[[], int]
    request: Request
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    x: weakref.ref[np.ndarray]
    out: weakref.ref[np.ndarray]
    words: np.ndarray
    rest: Callable[[], int] | None = None


class Nearby:
    """A kernel that runs on a copy of a tensor which other ranks cannot address; ``back``: the result is copied too.

    It does not keep the tensor alive.
    """

    def __init__(self, run: Callable[[], int], x: np.ndarray, near: np.ndarray, *, back: bool) -> None:
        self._run, self._near, self._begun = run, near, False
        here, there = x.ctypes.data, near.ctypes.data
        self._bring = bound(copy_bytes, there, here, x.nbytes)
        self._take = bound(copy_bytes, here, there, x.nbytes if back else 0)

    def __call__(self) -> int:
        if not self._begun:
            self._bring()
        status = self._run()
        self._begun = status != DONE
        if status == DONE:
            self._take()
        return status
