"""Exact values: initial weights and data from integers that are hashed from a counter and scaled by a power of two.

No processor, library or version computes other numbers, and float16 holds them without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

__all__ = ["integers", "numbers", "set_tensors", "weight", "with_exact_weights"]

#: Statistics and masks, which keep their values.
_KEPT = ("running_mean", "running_var", "hidden", "mean", "variance", "var")


def integers(name: str, shape: Sequence[int], below: int) -> NDArray[np.int32]:
    """Integers from 0 to ``below`` - 1."""
    return (_hashed(name, shape) % np.uint64(below)).astype(np.int32)


def numbers(name: str, shape: Sequence[int], power: int = 0) -> NDArray[np.float32]:
    """Multiples of 2**-10 from -1 to 1, times 2**-``power``, which is at most 13."""
    multiples = (_hashed(name, shape) % np.uint64(2048)).astype(np.int32) - 1024
    return np.ldexp(multiples.astype(np.float32), -10 - power)


def weight(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """An initial weight: about as large as the usual ones, scales about 1, biases small."""
    if len(shape) < 2:
        is_scale = name.rpartition("/")[2].rpartition(".")[2] in ("weight", "scale", "gamma")
        return numbers(name, shape, 3) + np.float32(is_scale)
    return numbers(name, shape, min((prod(shape) // shape[0]).bit_length() // 2, 13))


def set_tensors(module: Any) -> Any:
    """Set the parameters and buffers of a PyTorch module; return it."""
    import torch

    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point() and name.rpartition(".")[2] not in _KEPT:
                tensor.copy_(torch.from_numpy(weight(name, tensor.shape)))
    return module


def with_exact_weights(proto: bytes) -> bytes:
    """Return the model with other initializers of floating-point types, except statistics."""
    model = onnx.load_model_from_string(proto)
    for initializer in model.graph.initializer:
        old = numpy_helper.to_array(initializer)
        if old.dtype.kind == "f" and initializer.name.rpartition("/")[2] not in _KEPT:
            initializer.CopyFrom(
                numpy_helper.from_array(weight(initializer.name, old.shape).astype(old.dtype), initializer.name)
            )
    return model.SerializeToString()


def _hashed(name: str, shape: Sequence[int]) -> NDArray[np.uint64]:
    """A 31-bit hash of the name and each position (the finaliser of splitmix64)."""
    x = np.arange(prod(shape), dtype=np.uint64) + np.uint64(crc32(name.encode()) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(33)).reshape(tuple(shape))
