"""ReadyCall: one collective on two certain tensors, checked and described once, so that making it again is quick."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gcl.core.request import Request
from gcl.kernels.copies import copying

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
    rest: Callable[[], int] | None = None

    @classmethod
    def of(
        cls,
        ready: dict[tuple[object, ...], ReadyCall],
        run: Callable[[], int],
        request: Request,
        x: np.ndarray,
        out: np.ndarray,
        **more: Any,
    ) -> Self:
        """``run`` as ``request`` on these tensors, which ``ready`` forgets as soon as one of them is gone."""
        key = request.key(x, out)

        def forget(_: object) -> None:
            ready.pop(key, None)

        refs = weakref.ref(x, forget), weakref.ref(out, forget)
        return cls(run, request, x.dtype, x.shape, out.shape, *refs, **more)


class Nearby:
    """A kernel that runs on copies of tensors which other ranks cannot address.

    ``bring`` is (copy, input), ``take`` (output, copy); one may be the other, which is not copied. It does not keep
    the tensors themselves alive.
    """

    def __init__(
        self, run: Callable[[], int], bring: tuple[np.ndarray, np.ndarray], take: tuple[np.ndarray, np.ndarray]
    ) -> None:
        own = bring[1], take[0]
        self._near = [near for near in (bring[0], take[1]) if not any(near is tensor for tensor in own)]
        self._run, self._begun = run, False
        self._bring, self._take = copying(*bring), copying(*take)

    def __call__(self) -> int:
        if not self._begun:
            self._bring()
        status = self._run()
        self._begun = status != DONE
        if status == DONE:
            self._take()
        return status
