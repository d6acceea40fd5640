"""Prepared call: a collective on two given tensors, checked and described once, so that repeating it is quick."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gcl.core.request import Request

__all__ = ["BROKEN", "DONE", "MISMATCH", "STAGED", "WAITING", "PreparedCall"]

#: What a kernel returns: it is complete; call it again; the ranks called different collectives; some rank's tensor
#: is private, so that the rest is the staged kernel's; another process's memory could not be reached.
DONE, WAITING, MISMATCH, STAGED, BROKEN = range(5)


@dataclass(frozen=True)
class PreparedCall:
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
        """``run`` as ``request`` on these tensors, which ``prepared`` forgets as soon as one of them is gone."""
        key = request.key(x, out)

        def forget(_: object) -> None:
            prepared.pop(key, None)

        refs = weakref.ref(x, forget), weakref.ref(out, forget)
        return cls(run, request, x.dtype, x.shape, out.shape, *refs, **more)
