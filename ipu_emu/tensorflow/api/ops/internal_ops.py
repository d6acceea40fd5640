"""Internal ops that programs use to look at their tensors."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops

from ipu_emu.tensorflow.tracing.collectives import trace_of

__all__ = ["print_tensor"]


def print_tensor(input: Any, name: str = "") -> Any:
    """Print a tensor in every iteration, on the error output; return an op."""
    tensor = ops.convert_to_tensor(input)
    return trace_of("print_tensor").effect([tensor], "print", name or tensor.op.name)
