"""jit: the one way kernels are compiled: cached on disk, without the GIL, without fast-math.

Fast-math stays off because results must not depend on how a loop was vectorised (layout invariance).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.extending
from numba.core.types import CPointer

__all__ = ["carray", "intrinsic", "jit", "overload", "part", "pointer_to"]

#: numba's array over a pointer, as compiled code calls it.
carray: Any = vars(numba)["carray"]


F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compile ``function`` on first call for the types it is called with; keep its signature for type checkers."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def part(function: F) -> F:
    """As ``jit``, for what only compiled code calls: quicker to compile, because Python is given no way in."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(nogil=True, error_model="numpy", **options)(function))


def intrinsic(function: Callable[..., object]) -> Any:
    """numba's decorator for what is written in LLVM's terms: compiler input, not Python."""
    return numba.extending.intrinsic(function)


def overload(function: Callable[..., object]) -> Callable[[Callable[..., object]], Any]:
    """numba's decorator for a function whose body depends on the types it is called with."""
    return cast(Callable[[Callable[..., object]], Any], numba.extending.overload(function, strict=False))


def pointer_to(dtype: Any) -> Any:
    """numba's type of a pointer to ``dtype``."""
    pointer: Any = CPointer
    return pointer(dtype)
