"""Floating-point checks: errors where arithmetic produces NaN or infinity, for enableFloatingPointChecks.

    NaN from operands without NaN                    invalid operation
    infinity from finite operands                    division by zero, or overflow

Only the results of an op are checked, so that errors do not depend on the implementation of a kernel or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import ApplicationRuntimeError
from ipu_emu.ops import Call

_Arrays = Sequence[NDArray[Any] | None]


def with_floating_point_check(label: str, step: Call, inputs: _Arrays, outputs: _Arrays) -> Call:
    """``step``, which reads ``inputs`` and writes ``outputs``, followed by the checks listed above."""

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
    """Whether ``arrays`` contain a NaN, and whether they contain an infinity."""
    odd = [a for a in arrays if a is not None and a.dtype.kind == "f" and not np.isfinite(a).all()]
    return any(np.isnan(a).any() for a in odd), any(np.isinf(a).any() for a in odd)
