"""Case forms: calls of raw ops on operands of drawn shapes, which many op types share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Makes the operands (arrays) of a call, and the call, of the raw ops of TensorFlow and the random generator.
Case = Callable[[Any, Any], tuple[list[Any], Callable[..., Any]]]

_KINDS = {"f": np.float32, "i": np.int32, "b": np.bool_}


def shape_of(random: Any, most: int = 4, rank: int | None = None) -> tuple[int, ...]:
    rank = int(random.integers(0, 5)) if rank is None else rank
    return tuple(int(size) for size in random.integers(1, most + 1, rank))


def numbers(random: Any, shape: Any, kind: str = "f", low: float = -2.0, high: float = 2.0) -> Any:
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind == "i":
        return random.integers(int(low), int(high) + 1, shape).astype(np.int32)
    return random.uniform(low, high, shape).astype(np.float32)


def elementwise(count: int, kind: str = "f", low: float = -2.0, high: float = 2.0, spread: bool = False, **more: Any) -> Case:  # fmt: skip # noqa: E501
    """A call with ``count`` operands of one shape, or with shapes that broadcast."""

    def case(name: str, random: Any) -> Any:
        shape = shape_of(random)
        shapes = [shape] + [shape[int(random.integers(0, len(shape) + 1)) :] if spread else shape] * (count - 1)
        operands = [numbers(random, operand_shape, kind, low, high) for operand_shape in shapes]
        return operands, lambda raw, *values: getattr(raw, name)(**named(raw, name, values), **more)

    return case


def named(raw: Any, name: str, values: Any) -> dict[str, Any]:
    """``values`` by the names of the first arguments of the op."""
    import inspect

    function = inspect.unwrap(getattr(raw, name))
    return dict(zip(inspect.signature(function).parameters, values, strict=False))


def call(make: Callable[[Any], tuple[list[Any], dict[str, Any]]], held: int | None = None) -> Case:
    """A call whose first ``held`` operands are computed on the device and whose others are constants."""

    def case(name: str, random: Any) -> Any:
        operands, more = make(random)
        count = len(operands) if held is None else held
        rest = operands[count:]
        return operands[:count], lambda raw, *values: getattr(raw, name)(**named(raw, name, [*values, *rest]), **more)

    return case


def listed(make: Callable[[Any], tuple[list[Any], dict[str, Any]]], argument: str) -> Case:
    """A call with a list of operands."""

    def case(name: str, random: Any) -> Any:
        operands, more = make(random)
        return operands, lambda raw, *values: getattr(raw, name)(**{argument: list(values)}, **more)

    return case


def reduction(kind: str = "f", argument: str = "axis") -> Case:
    def make(random: Any) -> Any:
        x = numbers(random, shape_of(random, rank=int(random.integers(1, 5))), kind)
        axes = [axis for axis in range(x.ndim) if random.integers(0, 2)]
        return [x, np.array(axes, np.int32)], {"keep_dims": bool(random.integers(0, 2))}

    return call(make, 1)
