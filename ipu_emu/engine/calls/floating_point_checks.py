"""Exceptions of floating-point arithmetic, for sessions that ask for them (enableFloatingPointChecks).

    NaN made of operands without any                 invalid operation
    infinity made of finite operands                 division by zero, or overflow

They are found in the results of an op, so that they depend neither on how a kernel computes nor on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import ApplicationRuntimeError
from ipu_emu.ops import Call

__all__ = ["watched"]

_Arrays = Sequence[NDArray[Any] | None]


def watched(label: str, step: Call, inputs: _Arrays, outputs: _Arrays) -> Call:
    """``step``, which reads ``inputs`` and makes ``outputs``; raises where it makes what no finite number is."""

    def run() -> None:
        had_nan, had_infinity = _found(inputs)
        step()
        nan, infinity = _found(outputs)
        if nan and not had_nan:
            raise ApplicationRuntimeError(f"Floating point exception in {label}: invalid operation")
        if infinity and not had_infinity and not had_nan:
            raise ApplicationRuntimeError(f"Floating point exception in {label}: division by zero or overflow")

    return run


def _found(arrays: _Arrays) -> tuple[bool, bool]:
    """Whether there is a NaN, and an infinity."""
    odd = [a for a in arrays if a is not None and a.dtype.kind == "f" and not np.isfinite(a).all()]
    return any(np.isnan(a).any() for a in odd), any(np.isinf(a).any() for a in odd)
