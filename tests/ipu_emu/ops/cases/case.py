"""Case: an op in one form, with its definition in PyTorch.

``inputs`` are made as weights, so that their gradients can be anchored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipu_emu import popart

__all__ = ["Case", "Mean", "NoReduction", "Sum", "binary", "case", "custom_op", "graphcore_op", "onnx_op", "unary"]

Sum, Mean, NoReduction = popart.ReductionType.Sum, popart.ReductionType.Mean, popart.ReductionType.NoReduction


@dataclass(frozen=True)
class Case:
    """``build(builder, ids)`` adds the op; ``torch(torch, *tensors)`` computes the same."""

    name: str
    ops: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    build: Callable[[Any, list[str]], str]
    torch: Callable[..., Any]
    labels: np.ndarray | None = None
    positive: bool = False
    distinct: bool = False
    onnx: bool = True
    span: float = 1.0
    compound: bool = False  # made of several ops, each of which rounds a FLOAT16 result
    extra: dict[str, Any] = field(default_factory=dict)

    def inputs(self, dtype: Any = np.float32) -> list[np.ndarray]:
        """Values from -2 to 2, or 0.5 to 2.5, times ``span``; ``distinct`` ones differ widely, also from 0."""
        random = np.random.default_rng(sum(self.name.encode()))
        values = []
        for shape in self.shapes:
            size = int(np.prod(shape))
            if self.distinct:
                value = random.permutation(np.linspace(-2, 2, 2 * size)[::2] + 0.4 / size)
            else:
                value = random.uniform(-2, 2, size)
            value = np.abs(value) + 0.5 if self.positive else value
            values.append((self.span * value).reshape(shape).astype(dtype))
        return values


def onnx_op(name: str, *values: Any, opset: int = 10, **attributes: Any) -> Callable[[Any, list[str]], str]:
    """Add ``name`` of an opset, and take its first output."""

    def build(builder: Any, ids: list[str]) -> str:
        outputs = getattr(getattr(builder, f"aiOnnxOpset{opset}"), name)(ids, *values, **attributes)
        return str(outputs[0] if isinstance(outputs, list) else outputs)

    return build


def graphcore_op(name: str, *values: Any) -> Callable[[Any, list[str]], str]:
    return lambda builder, ids: str(getattr(builder.aiGraphcore, name)(ids, *values))


def custom_op(op: str, opset: int, **attributes: Any) -> Callable[[Any, list[str]], str]:
    """Add an op by its ONNX name, for ops that PopART's opsets do not have."""
    return lambda builder, ids: str(builder.customOp(op, opset, "ai.onnx", ids, attributes)[0])


def case(ops: str, name: str, shapes: Any, build: Any, torch: Any, **more: Any) -> Case:
    return Case(f"{ops.split()[-1]} {name}".strip(), tuple(ops.split()), tuple(shapes), build, torch, **more)


def unary(op: str, method: str, torch: Any, **more: Any) -> Case:
    return case(op, "", [(3, 5)], onnx_op(method), torch, **more)


def binary(op: str, method: str, torch: Any, **more: Any) -> list[Case]:
    shapes = {"same": [(3, 4), (3, 4)], "row": [(3, 4), (4,)], "column": [(2, 1, 3), (4, 1)], "scalar": [(), (2, 3)]}
    return [case(op, name, shape, onnx_op(method), torch, **more) for name, shape in shapes.items()]
