"""Element-wise rules: arithmetic, comparisons, mathematical functions, activations and their gradients.

A formula is a function of values, whose arithmetic operators append ops; operands keep the order of axes in which
images are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.values import Held, Known, TensorList, device_dtype

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def elementwise(formula: Callable[..., Value]) -> Rule:
    """Return the rule of a ``formula`` of all operands."""

    def rule(node: SourceNode) -> Held:
        values, first = node.aligned()
        return Held(formula(*values), first)

    return rule


def _with_attributes(formula: Callable[..., Value], *names: str) -> Rule:
    """Return the rule of a formula that also takes attributes."""

    def rule(node: SourceNode) -> Held:
        values, first = node.aligned()
        return Held(formula(*values, *(node.attr(name) for name in names)), first)

    return rule


def _named(type: str, **attributes: Any) -> Rule:
    return elementwise(lambda x, *others: x.op(type, *others, **attributes))


def cast_to(value: Value, numpy: Any) -> Value:
    """Return ``value`` in the device's type for ``numpy``."""
    kind = device_dtype(numpy)
    return value if value.tensor.dtype is kind else value.op("Cast", to=kind.onnx)


def _where(condition: Value, a: Value | float, b: Value | float) -> Value:
    """Select a where the condition holds, else b; one of the two may be a number."""
    like = a if isinstance(a, Value) else b
    assert isinstance(like, Value)
    first, second = (value if isinstance(value, Value) else like.like(value) for value in (a, b))
    return condition.op("Where", first, second)


def _zero(x: Value) -> Value:
    return x.op("Equal", x.like(0))


# Arithmetic


def _floor_div(a: Value, b: Value) -> Value:
    if a.tensor.dtype.is_float:
        return (a / b).op("Floor")
    rest, zero = a.op("Mod", b, fmod=1), a.like(0)
    crosses = _zero(rest).op("Not").op("And", rest.op("Less", zero).op("Xor", b.op("Less", zero)))
    return a / b - crosses.cast(a.tensor.dtype)


def _truncate_div(a: Value, b: Value) -> Value:
    x = a / b
    return _where(x.op("Less", x.like(0)), x.op("Ceil"), x.op("Floor")) if x.tensor.dtype.is_float else x


def _no_nan(operation: Callable[[Value, Value], Value], which: int) -> Rule:
    """A product or quotient that is 0 wherever its operand ``which`` is 0."""

    def formula(a: Value, b: Value) -> Value:
        result = operation(a, b)
        return _where(_zero((a, b)[which]), result.like(0), result)

    return elementwise(formula)


def _add_many(node: SourceNode) -> Held | TensorList:
    lists = [value for value in node.inputs if isinstance(value, TensorList)]
    if lists:
        return _added(node, lists)
    values, first = node.aligned()
    return Held(_sum(values), first)


def _added(node: SourceNode, lists: list[TensorList]) -> TensorList:
    """The sums of the elements of lists; an element that was not set is zero."""
    items: list[Any] = []
    for elements in zip(*(tensor_list.items for tensor_list in lists), strict=True):
        values = [node.of(element) for element in elements if element is not None]
        items.append(Held(_sum(values)) if values else None)
    return TensorList(tuple(items), lists[0].shape, lists[0].dtype)


def _sum(values: Sequence[Value]) -> Value:
    return values[0].op("Sum", *values[1:]) if len(values) > 1 else values[0]


def _select(node: SourceNode) -> Held:
    """The first Select takes a vector for whole rows."""
    if node.op.type == "Select" and len(node.shape(0)) == 1 and len(node.shape(1)) > 1:
        rows = node.value(0).shaped((*node.shape(0), *(1,) * (len(node.shape(1)) - 1)))
        return Held(rows.op("Where", node.value(1), node.value(2)))
    values, first = node.aligned()
    return Held(values[0].op("Where", *values[1:]), first)


def _cast(node: SourceNode) -> Held:
    (value,), first = node.aligned()
    numpy = node.numpy_of("DstT")
    if np.dtype(numpy) == np.bool_:
        return Held(_zero(value).op("Not") if value.tensor.dtype.name != "BOOL" else value, first)
    return Held(cast_to(value, numpy), first)


def _shift(direction: str) -> Rule:
    return elementwise(lambda a, b: a.op("BitShift", b, direction=direction))


# Activations; as in TensorFlow, their gradients take either the input or the output of the activation


def _selu(x: Value) -> Value:
    low = (x.op("Exp") - 1.0) * (_SELU_SCALE * _SELU_ALPHA)
    return _where(x.op("Less", x.like(0)), low, x * _SELU_SCALE)


def _relu6_grad(g: Value, x: Value) -> Value:
    inside = x.op("Greater", x.like(0)).op("And", x.op("Less", x.like(6)))
    return _where(inside, g, 0.0)


def _softsign_grad(g: Value, x: Value) -> Value:
    size = x.op("Abs") + 1.0
    return g / (size * size)


def _approximate_equal(a: Value, b: Value, tolerance: float) -> Value:
    size = (a - b).op("Abs")
    return size.op("Less", size.like(tolerance))


def _bias_add(node: SourceNode) -> Held:
    if node.attr("data_format") == b"NHWC":
        (x, bias), first = node.aligned()
        return Held(x + bias, first)
    x = node.x
    return Held(x + node.y.shaped((*node.shape(1), *(1,) * (len(node.shape(0)) - 2))))


def _bias_add_grad(node: SourceNode) -> Value:
    held = node.held(0)
    if node.attr("data_format") == b"NHWC" and not held.channels_first:
        value, channel = held.value, len(held.shape) - 1
    else:
        value, channel = held.value if held.channels_first else node.x, 1
    axes = [axis for axis in range(value.tensor.rank) if axis != channel]
    return value.op("ReduceSum", axes=axes, keepdims=0)


def _identity(node: SourceNode) -> Any:
    return node.inputs[0]


def _zeros_like(number: float) -> Rule:
    def rule(node: SourceNode) -> Known | TensorList:
        value = node.inputs[0]
        if isinstance(value, TensorList):
            return TensorList((None,) * len(value.items), value.shape, value.dtype)
        return Known(np.full(node.shape(0), number, node.numpy_of("T")))

    return rule


def _assert(node: SourceNode) -> list[Any]:
    """Assertions are not checked on the device."""
    return []


_ONE: dict[str, str] = {
    "Abs": "Abs", "Acos": "Acos", "Acosh": "Acosh", "Asin": "Asin", "Asinh": "Asinh", "Atan": "Atan",
    "Atanh": "Atanh", "Ceil": "Ceil", "Cos": "Cos", "Cosh": "Cosh", "Erf": "Erf", "Exp": "Exp", "Expm1": "Expm1",
    "Floor": "Floor", "Inv": "Reciprocal", "Invert": "BitwiseNot", "IsInf": "IsInf", "IsNan": "IsNaN", "Log": "Log",
    "Log1p": "Log1p", "LogicalNot": "Not", "Neg": "Neg", "Reciprocal": "Reciprocal", "Relu": "Relu",
    "Rint": "Round", "Round": "Round", "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "Sinh": "Sinh",
    "Softplus": "Softplus", "Softsign": "Softsign", "Sqrt": "Sqrt", "Tan": "Tan", "Tanh": "Tanh",
}  # fmt: skip

_TWO: dict[str, str] = {
    "Add": "Add", "AddV2": "Add", "Atan2": "Atan2", "BitwiseAnd": "BitwiseAnd", "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor", "Div": "Div", "Equal": "Equal", "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual", "Less": "Less", "LessEqual": "LessOrEqual", "LogicalAnd": "And",
    "LogicalOr": "Or", "Maximum": "Max", "Minimum": "Min", "Mul": "Mul", "Pow": "Pow", "RealDiv": "Div",
    "Sub": "Sub",
}  # fmt: skip

_FORMULAS: dict[str, Callable[..., Value]] = {
    "ClipByValue": lambda x, low, high: x.op("Min", high).op("Max", low),
    "Elu": lambda x: _where(x.op("Less", x.like(0)), x.op("Expm1"), x),
    "EluGrad": lambda g, y: _where(y.op("Less", y.like(0)), g * (y + 1.0), g),
    "Erfc": lambda x: 1.0 - x.op("Erf"),
    "FloorDiv": _floor_div,
    "FloorMod": lambda a, b: a.op("Mod", b, fmod=0),
    "InvGrad": lambda y, g: -(g * (y * y)),
    "IsFinite": lambda x: x.op("IsNaN").op("Or", x.op("IsInf")).op("Not"),
    "Mod": lambda a, b: a.op("Mod", b, fmod=1),
    "NotEqual": lambda a, b: a.op("Equal", b).op("Not"),
    "ReciprocalGrad": lambda y, g: -(g * (y * y)),
    "Relu6": lambda x: x.op("Clip", min=0.0, max=6.0),
    "Relu6Grad": _relu6_grad,
    "ReluGrad": lambda g, x: g.spread_to(x.tensor.shape).op("ReluGrad", x),
    "Rsqrt": lambda x: x.op("Sqrt").op("Reciprocal"),
    "RsqrtGrad": lambda y, g: g * -0.5 * (y * y * y),
    "Selu": _selu,
    "SeluGrad": lambda g, y: _where(y.op("Less", y.like(0)), g * (y + _SELU_SCALE * _SELU_ALPHA), g * _SELU_SCALE),
    "SigmoidGrad": lambda y, g: g * (y * (1 - y)),
    "SoftplusGrad": lambda g, x: g * x.op("Sigmoid"),
    "SoftsignGrad": _softsign_grad,
    "SqrtGrad": lambda y, g: g * 0.5 / y,
    "Square": lambda x: x * x,
    "SquaredDifference": lambda a, b: (a - b) * (a - b),
    "TanhGrad": lambda y, g: g * (1 - y * y),
    "TruncateDiv": _truncate_div,
    "TruncateMod": lambda a, b: a.op("Mod", b, fmod=1),
}

RULES: dict[str, Rule] = {
    **{type: _named(target) for type, target in _ONE.items()},
    **{type: _named(target) for type, target in _TWO.items()},
    **{type: elementwise(formula) for type, formula in _FORMULAS.items()},
    "AccumulateNV2": _add_many,
    "AddN": _add_many,
    "ApproximateEqual": _with_attributes(_approximate_equal, "tolerance"),
    "Assert": _assert,
    "BiasAdd": _bias_add,
    "BiasAddGrad": _bias_add_grad,
    "Cast": _cast,
    "CheckNumerics": _identity,
    "DivNoNan": _no_nan(lambda a, b: a / b, 1),
    "EnsureShape": _identity,
    "Identity": _identity,
    "IdentityN": lambda node: list(node.inputs),
    "LeakyRelu": _with_attributes(lambda x, alpha: _where(x.op("Greater", x.like(0)), x, x * alpha), "alpha"),
    "LeakyReluGrad": _with_attributes(lambda g, x, alpha: _where(x.op("Greater", x.like(0)), g, g * alpha), "alpha"),
    "LeftShift": _shift("LEFT"),
    "MulNoNan": _no_nan(lambda a, b: a * b, 1),
    "OnesLike": _zeros_like(1),
    "PreventGradient": _identity,
    "RightShift": _shift("RIGHT"),
    "Select": _select,
    "SelectV2": _select,
    "Snapshot": _identity,
    "StopGradient": _identity,
    "Xdivy": _no_nan(lambda x, y: x / y, 0),
    "Xlog1py": _no_nan(lambda x, y: x * y.op("Log1p"), 0),
    "Xlogy": _no_nan(lambda x, y: x * y.op("Log"), 0),
    "ZerosLike": _zeros_like(0),
}
