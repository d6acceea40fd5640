"""Adjoint: the input of a gradient rule, and the symbolic values that it computes with.

A rule is written as in a textbook, ``grad=lambda d: d.g * (1 - d.y * d.y)``: the operators append ops to the
graph, so that gradients are ops like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import DType
from ipu_emu.ops.core.node import Node

#: Appends an op: (type, inputs, attributes, number of outputs) -> the ids of its outputs.
Emit = Callable[[str, Sequence["Value"], dict[str, Any], int], "list[Value]"]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph under construction; arithmetic on it appends ops."""

    tensor: Tensor
    emit: Emit
    constant: Callable[[float, Tensor], Tensor]

    def _with(self, type: str, other: Value | float, *, swap: bool = False) -> Value:
        if not isinstance(other, Value):
            other = self.like(other)
        return self.emit(type, [other, self] if swap else [self, other], {}, 1)[0]

    def __add__(self, other: Value | float) -> Value:
        return self._with("Add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._with("Sub", other, swap=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._with("Mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Value | float) -> Value:
        return self._with("Div", other)

    def __neg__(self) -> Value:
        return self.emit("Neg", [self], {}, 1)[0]

    def op(self, type: str, *others: Value, **attributes: Any) -> Value:
        """Apply the op ``type`` to this value and ``others``."""
        return self.emit(type, [self, *others], attributes, 1)[0]

    def ops(self, count: int, type: str, *others: Value, **attributes: Any) -> list[Value]:
        """Apply an op that has ``count`` outputs."""
        return self.emit(type, [self, *others], attributes, count)

    def like(self, number: float) -> Value:
        """A scalar constant of this element type."""
        return Value(self.constant(number, self.tensor), self.emit, self.constant)

    def constantly(self, number: float) -> Value:
        """A constant of this type and shape."""
        return self.like(number).spread_to(self.tensor.shape)

    def scaled(self, factor: float) -> Value:
        """This value times ``factor``, which is not rounded to the element type first."""
        if factor == 1:
            return self
        in_double = self.tensor.dtype.is_float and self.tensor.dtype.itemsize > 4
        return self * factor if in_double else self.op("Scale", scale=float(factor))

    def summed_to(self, shape: tuple[int, ...]) -> Value:
        """Undo broadcasting: sum over the axes in which ``shape`` is smaller."""
        return self if self.tensor.shape == shape else self.op("SumTo", shape=list(shape))

    def spread_to(self, shape: tuple[int, ...]) -> Value:
        """Broadcast to ``shape``."""
        return self if self.tensor.shape == shape else self.op("SpreadTo", shape=list(shape))

    def cast(self, dtype: DType) -> Value:
        """This value converted to ``dtype``."""
        return self if self.tensor.dtype is dtype else self.op("Cast", to=dtype.onnx)

    def shaped(self, shape: tuple[int, ...]) -> Value:
        """The same elements in another shape."""
        return self if self.tensor.shape == shape else self.op("ReshapeTo", shape=list(shape))


def concatenated(values: Sequence[Value], axis: int) -> Value:
    """Return the concatenation of ``values`` along ``axis``, without an op for a single value."""
    return values[0].op("Concat", *values[1:], axis=axis) if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Adjoint:
    """The op to differentiate: ``g`` is the gradient of output 0, ``x`` is input 0, ``y`` is output 0."""

    node: Node
    gradients: tuple[Value | None, ...]
    operands: tuple[Value | None, ...]
    outputs: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs of an op that has no optional input."""
        return tuple(self.input(index) for index in range(len(self.operands)))

    def input(self, index: int) -> Value:
        """Input ``index``, which must not be left out."""
        value = self.operands[index]
        assert value is not None
        return value

    def optional(self, index: int) -> Value | None:
        """Input ``index``, or None where it was left out."""
        return self.operands[index] if index < len(self.operands) else None

    def gradient(self, index: int) -> Value:
        """The gradient of output ``index``, zeros if nothing depends on it."""
        return self.gradients[index] or self.outputs[index].constantly(0.0)

    @property
    def g(self) -> Value:
        gradient = self.gradients[0]
        assert gradient is not None
        return gradient

    @property
    def x(self) -> Value:
        return self.input(0)

    @property
    def y(self) -> Value:
        return self.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of input 0."""
        return self.x.tensor.shape

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attribute(name, default)


#: Returns the gradient of each input, or None for an input without one; a single value is that of input 0.
GradRule = Callable[[Adjoint], "Value | Sequence[Value | None] | None"]
