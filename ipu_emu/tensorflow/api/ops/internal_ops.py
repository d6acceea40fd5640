"""Internal ops: printing tensors of a program."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops

from ipu_emu.tensorflow.trace.collectives import trace_of

__all__ = ["print_tensor"]


def print_tensor(input: Any, name: str = "") -> Any:
    """Print a tensor to standard error in every iteration; return an op."""
    tensor = ops.convert_to_tensor(input)
    return trace_of("print_tensor").effect([tensor], "print", name or tensor.op.name)
