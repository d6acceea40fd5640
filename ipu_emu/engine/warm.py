"""Warm: compile the kernels of prepared calls without making the calls.

A call on the arrays of a model may take long, and changes them; what has to be compiled depends on types alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba

from ipu_emu.ops import Step
from ipu_emu.ops.arrays import Chain

__all__ = ["compile_calls"]

_type_of: Any = vars(numba)["typeof"]


def compile_calls(step: Step) -> None:
    """Compile, or load from disk, the numba kernels that ``step`` calls; others are compiled already."""
    seen: set[tuple[Any, ...]] = set()
    for call in step.steps if isinstance(step, Chain) else (step,):
        function: Any = call.func if isinstance(call, partial) else None
        if not isinstance(call, partial) or not hasattr(function, "nopython_signatures"):
            continue
        signature = tuple(_type_of(argument) for argument in call.args)
        if (function, *signature) not in seen and not call.keywords:
            seen.add((function, *signature))
            function.compile(signature)
