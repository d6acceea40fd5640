"""Cases of element-wise ops and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, binary, case, custom_op, graphcore_op, onnx_op, unary

__all__ = ["ELEMENTS"]


def activation(op: str, torch: Any, opset: int = 6, **attributes: Any) -> Case:
    build = custom_op(op, opset, **attributes)
    return case(op, "", [(3, 5)], build, torch, distinct=True, onnx=opset <= 10)


def since(op: str, method: str, opset: int, torch: Any, **more: Any) -> Case:
    return case(op, "", [(3, 5)], onnx_op(method, opset=opset), torch, **more)


def graphcore(op: str, method: str, torch: Any, **more: Any) -> Case:
    return case(op, "graphcore", [(3, 5)], graphcore_op(method), torch, onnx=False, **more)


def pairs(op: str, method: str, torch: Any) -> list[Case]:
    shapes = {"same": [(3, 4), (3, 4)], "row": [(3, 4), (4,)]}
    build = graphcore_op(method)
    return [case(op, name, shape, build, torch, onnx=False, positive=True) for name, shape in shapes.items()]


def reduction(op: str, method: str, torch: Any, **more: Any) -> list[Case]:
    """All elements; two axes kept; one axis dropped. ``torch`` takes the axes."""
    x = [(2, 3, 4)]
    return [
        case(op, "all", x, onnx_op(method, None, 0), lambda t, v: torch(t, v, (0, 1, 2), False), **more),
        case(op, "axes", x, onnx_op(method, [0, -1]), lambda t, v: torch(t, v, (0, 2), True), **more),
        case(op, "dropped", x, onnx_op(method, [1], 0), lambda t, v: torch(t, v, (1,), False), **more),
    ]


def product(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def clip_by_inputs(builder: Any, ids: list[str], both: bool = True) -> str:
    low, high = (builder.aiOnnxOpset11.constant(np.array(value, np.float32)) for value in (-0.5, 1.0))
    return str(builder.aiOnnxOpset11.clip([*ids, low if both else "", high]))


three = [(2, 3), (3,), (1, 1)]

ELEMENTS = [
    unary("Abs", "abs", lambda t, x: x.abs(), distinct=True),
    unary("Reciprocal", "reciprocal", lambda t, x: 1 / x, positive=True),
    since("Sin", "sin", 7, lambda t, x: x.sin()),
    since("Cos", "cos", 7, lambda t, x: x.cos()),
    since("Tan", "tan", 7, lambda t, x: x.tan(), span=0.5),
    since("Asin", "asin", 7, lambda t, x: x.asin(), span=0.4),
    since("Acos", "acos", 7, lambda t, x: x.acos(), span=0.4),
    since("Atan", "atan", 7, lambda t, x: x.atan()),
    since("Sinh", "sinh", 9, lambda t, x: x.sinh()),
    since("Cosh", "cosh", 9, lambda t, x: x.cosh()),
    since("Asinh", "asinh", 9, lambda t, x: x.asinh()),
    since("Acosh", "acosh", 9, lambda t, x: x.acosh(), span=4.0, positive=True),
    since("Atanh", "atanh", 9, lambda t, x: x.atanh(), span=0.4),
    since("Erf", "erf", 9, lambda t, x: x.erf()),
    graphcore("Log1p", "log1p", lambda t, x: x.log1p(), positive=True),
    graphcore("Expm1", "expm1", lambda t, x: x.expm1()),
    unary("Softplus", "softplus", lambda t, x: t.nn.functional.softplus(x)),
    unary("Softsign", "softsign", lambda t, x: t.nn.functional.softsign(x), distinct=True),
    activation("LeakyRelu", lambda t, x: t.nn.functional.leaky_relu(x, 0.2), alpha=0.2),
    activation("Elu", lambda t, x: t.nn.functional.elu(x, 0.5), alpha=0.5),
    activation("Selu", lambda t, x: t.nn.functional.selu(x)),
    activation("Celu", lambda t, x: t.nn.functional.celu(x, 2.0), 12, alpha=2.0),
    activation("HardSigmoid", lambda t, x: (0.3 * x + 0.4).clamp(0, 1), alpha=0.3, beta=0.4),
    activation("HardSwish", lambda t, x: t.nn.functional.hardswish(x), 14),
    activation("ThresholdedRelu", lambda t, x: t.nn.functional.threshold(x, 0.7, 0), 10, alpha=0.7),
    activation("Shrink", lambda t, x: t.nn.functional.softshrink(x, 0.7), 9, lambd=0.7, bias=0.7),
    activation("Mish", lambda t, x: t.nn.functional.mish(x), 18),
    activation("Swish", lambda t, x: x * (1.5 * x).sigmoid(), 24, alpha=1.5),
    activation("Gelu", lambda t, x: t.nn.functional.gelu(x), 20),
    case(
        "Gelu",
        "tanh",
        [(3, 5)],
        custom_op("Gelu", 20, approximate="tanh"),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        onnx=False,
    ),
    graphcore("Gelu", "gelu", lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    graphcore("GeluErf", "geluerf", lambda t, x: t.nn.functional.gelu(x)),
    graphcore("Swish", "swish", lambda t, x: t.nn.functional.silu(x)),
    *binary("Pow", "pow", lambda t, a, b: a**b, positive=True),
    case(
        "Pow",
        "of integers",
        [(3, 4)],
        lambda b, i: b.aiOnnx.pow([*i, b.aiOnnx.constant(np.array(3.0, np.float32))]),
        lambda t, x: x**3,
    ),
    *pairs("Fmod", "fmod", lambda t, a, b: a.fmod(b)),
    case("Mod", "a", [(3, 4), (4,)], onnx_op("mod", fmod=1), lambda t, a, b: a.fmod(b), positive=True),
    *pairs("Remainder", "remainder", lambda t, a, b: a.remainder(b)),
    *pairs("Atan2", "atan2", lambda t, a, b: t.atan2(a, b)),
    case("PRelu", "", [(2, 3, 4), (3, 1)], onnx_op("prelu"), lambda t, x, s: t.where(x < 0, x * s, x), distinct=True),
    case("Clip", "attributes", [(3, 5)], onnx_op("clip", 1.0, -0.5), lambda t, x: x.clamp(-0.5, 1.0), distinct=True),
    case("Clip", "inputs", [(3, 5)], clip_by_inputs, lambda t, x: x.clamp(-0.5, 1.0), distinct=True),
    case(
        "Clip",
        "one bound",
        [(3, 5)],
        lambda b, i: clip_by_inputs(b, i, False),
        lambda t, x: x.clamp(max=1.0),
        distinct=True,
    ),
    case("Sum", "", three, onnx_op("sum"), lambda t, a, b, c: a + b + c),
    case("Sum", "one", [(2, 3)], onnx_op("sum"), lambda t, a: a),
    case("Mean", "", three, onnx_op("mean"), lambda t, a, b, c: (a + b + c) / 3),
    case("Max", "", three, onnx_op("max"), lambda t, a, b, c: a.maximum(b).maximum(c), distinct=True),
    case("Min", "", three, onnx_op("min"), lambda t, a, b, c: a.minimum(b).minimum(c), distinct=True),
    case(
        "ScaledAdd",
        "",
        [(3, 4), (3, 4)],
        graphcore_op("scaledadd", 0.5, 2.0),
        lambda t, a, b: a / 2 + 2 * b,
        onnx=False,
    ),
    case(
        "Where",
        "",
        [(3, 4), (4,)],
        lambda b, i: b.aiOnnx.where([b.aiOnnx.greater(i), *i]),
        lambda t, x, y: t.where(x > y, x, y),
        distinct=True,
    ),
    *reduction("ReduceMax", "reducemax", lambda t, x, axes, keep: x.amax(axes, keep), distinct=True),
    *reduction("ReduceMin", "reducemin", lambda t, x, axes, keep: x.amin(axes, keep), distinct=True),
    *reduction("ReduceProd", "reduceprod", product),
    *reduction("ReduceSumSquare", "reducesumsquare", lambda t, x, axes, keep: (x * x).sum(axes, keep)),
    *reduction("ReduceL1", "reducel1", lambda t, x, axes, keep: x.abs().sum(axes, keep), distinct=True),
    *reduction("ReduceL2", "reducel2", lambda t, x, axes, keep: (x * x).sum(axes, keep).sqrt()),
    *reduction("ReduceLogSum", "reducelogsum", lambda t, x, axes, keep: x.sum(axes, keep).log(), positive=True),
    *reduction("ReduceLogSumExp", "reducelogsumexp", lambda t, x, axes, keep: x.logsumexp(axes, keep)),
]
