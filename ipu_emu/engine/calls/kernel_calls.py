"""Direct: calls of compiled kernels that do not look at the types of their arguments, which never change.

A step of a perceptron of 16 x 16 layers, 36 instructions: 2.3 us of CPU time per instruction without, 1.8 us with.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gcl.kernels.jit import bound
from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import CallChain, call_chain

__all__ = ["direct"]


def direct(step: Call) -> Call:
    """``step`` with its numba kernels compiled, or loaded from disk, for their arguments; others stay as they are."""
    if isinstance(step, CallChain):
        return call_chain(*map(direct, step.steps))
    if not isinstance(step, partial) or step.keywords:
        return step
    kernel: Any = step.func
    if not hasattr(kernel, "nopython_signatures"):
        return step
    call: Any = bound(kernel, *step.args)
    made: Call = call
    return made
