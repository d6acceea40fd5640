"""Random ops."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import array_ops, math_ops, random_ops, stateless_random_ops

from ipu_emu.session.options.without_effect import without_effect

__all__ = ["dropout"]


@without_effect("ref")
def dropout(
    x: Any, rate: float = 0.5, noise_shape: Any = None, ref: Any = None, seed: Any = None, name: str | None = None
) -> Any:
    """Set a fraction ``rate`` of the elements to 0, and scale the others; a ``seed`` is two numbers or a tensor."""
    if not 0 <= rate < 1:
        raise ValueError(f"The rate must be in the interval [0, 1), not {rate}")
    shape = array_ops.shape(x) if noise_shape is None else noise_shape
    if seed is None:
        numbers = random_ops.random_uniform(shape, dtype=x.dtype, name=name)
    else:
        numbers = stateless_random_ops.stateless_random_uniform(shape, seed, dtype=x.dtype, name=name)
    return x * math_ops.cast(numbers >= rate, x.dtype) * (1.0 / (1.0 - rate))
