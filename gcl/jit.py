"""jit: the one way kernels are compiled: cached on disk, without the GIL, without fast-math.

Fast-math stays off because results must not depend on how a loop was vectorised (layout invariance).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["jit"]

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile ``function`` on first call for the types it is called with; keep its signature for type checkers."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
