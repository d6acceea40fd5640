"""ReadyCall: one collective on two certain tensors, checked and described once, so that making it again is quick."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.calls import Request

__all__ = ["DONE", "MISMATCH", "STAGED", "WAITING", "ReadyCall"]

#: What a kernel returns: it is complete; call it again; the ranks called different collectives; some rank's tensor
#: is private, so that the rest is the staged kernel's.
DONE, WAITING, MISMATCH, STAGED = range(4)


@dataclass(frozen=True)
class ReadyCall:
    """``run`` returns DONE, or what is left for the path's ``finish``; the tensors may be gone by then.

    ``rest`` goes on where ``run`` returned STAGED.
    """

    run: Callable[[], int]
    request: Request
    dtype: np.dtype[Any]
    x: weakref.ref[np.ndarray]
    out: weakref.ref[np.ndarray]
    words: np.ndarray
    rest: Callable[[], int] | None = None
