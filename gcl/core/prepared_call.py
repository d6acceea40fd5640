"""Prepared call: a collective on two given tensors, checked once, so that it can be repeated quickly."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gcl.core.request import Request

# What a kernel returns: plain numbers, because a compiled function takes 1.4 us to return a member of an enumeration.
DONE = 0  #: the call is complete
WAITING = 1  #: a rank is missing: call the kernel again
MISMATCH = 2  #: the ranks made different calls
STAGED = 3  #: a tensor of some rank is outside the segments: the staged kernel must do the rest
BROKEN = 4  #: the memory of another process could not be accessed
UNREAD = 5  #: the call is complete; messages of earlier calls may be waiting to be read


@dataclass(frozen=True)
class PreparedCall:
    """``run`` returns DONE, or the status with which the path's ``finish`` continues.

    It keeps only weak references to the tensors. ``rest`` continues a call for which ``run`` returned STAGED.
    """

    run: Callable[[], int]
    request: Request
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    x: weakref.ref[np.ndarray]
    out: weakref.ref[np.ndarray]
    rest: Callable[[], int] | None = None

    @classmethod
    def of(
        cls,
        prepared: dict[tuple[object, ...], PreparedCall],
        run: Callable[[], int],
        request: Request,
        x: np.ndarray,
        out: np.ndarray,
        **more: Any,
    ) -> Self:
        """Prepare ``run`` as ``request`` on these tensors; removed from ``prepared`` when one of them is deleted."""
        key = request.key(x, out)

        def forget(_: object) -> None:
            prepared.pop(key, None)

        refs = weakref.ref(x, forget), weakref.ref(out, forget)
        return cls(run, request, x.dtype, x.shape, out.shape, *refs, **more)
