"""All cases: every differentiable op in its important forms.

One table serves the gradient checker, the comparison with PyTorch, the one with ONNX's reference evaluator and the
half-precision test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, Mean, NoReduction, Sum, binary, case, graphcore_op, onnx_op, unary
from tests.ipu_emu.ops.cases.einsum_cases import MATRICES
from tests.ipu_emu.ops.cases.elementwise_cases import ELEMENTS
from tests.ipu_emu.ops.cases.graphcore_cases import GRAPHCORE
from tests.ipu_emu.ops.cases.indexing_cases import PLACES
from tests.ipu_emu.ops.cases.layer_cases import LAYERS
from tests.ipu_emu.ops.cases.rare_op_cases import RARE
from tests.ipu_emu.ops.cases.sliding_window_cases import WINDOWS

__all__ = ["CASES", "Case"]


def conv(name: str, x: Any, w: Any, bias: bool = False, **attributes: Any) -> Case:
    def torch_conv(torch: Any, x: Any, w: Any, b: Any = None) -> Any:
        pads = attributes.get("pads", [0, 0, 0, 0])
        x = torch.nn.functional.pad(x, (pads[1], pads[3], pads[0], pads[2]))
        rest = {"stride": attributes.get("strides", [1, 1]), "dilation": attributes.get("dilations", [1, 1])}
        return torch.nn.functional.conv2d(x, w, b, groups=attributes.get("group", 1), **rest)

    shapes = [x, w, (w[0],)] if bias else [x, w]
    return case("Conv", name, shapes, onnx_op("conv", **attributes), torch_conv)


def max_pool(name: str, x: Any, kernel: list[int], pads: Any = (0, 0), strides: Any = (1, 1), ceil: int = 0) -> Case:
    build = onnx_op("maxpool", 1, kernel, ceil, pads=[*pads, *pads], strides=list(strides))

    def torch_pool(torch: Any, x: Any) -> Any:
        return torch.nn.functional.max_pool2d(x, kernel, list(strides), list(pads), ceil_mode=bool(ceil))

    return case("MaxPool", name, [x], build, torch_pool, distinct=True)


def average_pool(name: str, x: Any, kernel: list[int], pads: Any, strides: Any, count: int) -> Case:
    build = onnx_op("averagepool", kernel, count_include_pad=count, pads=[*pads, *pads], strides=list(strides))

    def torch_pool(torch: Any, x: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, kernel, list(strides), list(pads), count_include_pad=bool(count))

    return case("AveragePool", name, [x], build, torch_pool)


def gemm(name: str, a: Any, b: Any, c: Any = None, **attributes: Any) -> Case:
    def torch_gemm(torch: Any, a: Any, b: Any, c: Any = 0.0) -> Any:
        a = a.T if attributes.get("transA") else a
        b = b.T if attributes.get("transB") else b
        return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * c

    shapes = [a, b] if c is None else [a, b, c]
    return case("Gemm", name, shapes, onnx_op("gemm", **attributes), torch_gemm)


def nll(name: str, reduction: Any, ignore: int | None = None, *, is_log: bool = False, shape: Any = (6, 4)) -> Case:
    labels = np.random.default_rng(3).integers(0, shape[-1], shape[:-1]).astype(np.int32)

    def build(builder: Any, ids: list[str]) -> str:
        return str(builder.aiGraphcore.nllloss(ids, reduction, ignore, is_log))

    def torch_nll(torch: Any, p: Any, labels: Any) -> Any:
        logs = (p if is_log else p.log()).reshape(-1, shape[-1])
        how = {Sum: "sum", Mean: "mean", NoReduction: "none"}[reduction]
        loss = torch.nn.functional.nll_loss(
            logs, labels.reshape(-1).long(), reduction=how, ignore_index=-100 if ignore is None else ignore
        )
        return loss.reshape(shape[:-1]) if reduction is NoReduction else loss

    return case("Nll", name, [shape], build, torch_nll, labels=labels, positive=True)


def softmax_nll(builder: Any, ids: list[str]) -> str:
    return str(builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([ids[0]]), ids[1]]))


def l1(name: str, reduction: Any) -> Case:
    how = {Sum: lambda t: t.sum(), Mean: lambda t: t.mean(), NoReduction: lambda t: t}[reduction]
    return case(
        "L1",
        name,
        [(3, 4)],
        graphcore_op("l1loss", 0.3, reduction),
        lambda torch, x: 0.3 * how(x.abs()),
        distinct=True,
    )


def flat_softmax(torch: Any, x: Any, axis: int, name: str) -> Any:
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return getattr(torch, name)(rows, 1).reshape(x.shape)


CASES = [
    unary("Relu", "relu", lambda torch, x: x.relu(), distinct=True),
    case("Relu", "rank 4", [(2, 3, 4, 5)], onnx_op("relu"), lambda torch, x: x.relu(), distinct=True),
    unary("Sigmoid", "sigmoid", lambda torch, x: x.sigmoid()),
    unary("Tanh", "tanh", lambda torch, x: x.tanh()),
    unary("Exp", "exp", lambda torch, x: x.exp()),
    unary("Log", "log", lambda torch, x: x.log(), positive=True),
    unary("Sqrt", "sqrt", lambda torch, x: x.sqrt(), positive=True),
    unary("Neg", "neg", lambda torch, x: -x),
    unary("Identity", "identity", lambda torch, x: x),
    case("Scale", "", [(3, 5)], graphcore_op("scale", -1.5), lambda torch, x: -1.5 * x, onnx=False),
    case("Nop", "", [(3, 5)], graphcore_op("nop"), lambda torch, x: x),
    *binary("Add", "add", lambda torch, a, b: a + b),
    *binary("Sub", "sub", lambda torch, a, b: a - b),
    *binary("Mul", "mul", lambda torch, a, b: a * b),
    *binary("Div", "div", lambda torch, a, b: a / b, positive=True),
    case("Mul", "same twice", [(3, 4)], lambda b, ids: b.aiOnnx.mul(ids * 2), lambda torch, x: x * x),
    case(
        "Reshape",
        "",
        [(2, 3, 4)],
        lambda b, ids: b.reshape_const(b.aiOnnx, ids, [0, -1]),
        lambda torch, x: x.reshape(2, 12),
    ),
    case(
        "Reshape",
        "graphcore",
        [(2, 3, 4)],
        graphcore_op("reshape", [6, 4]),
        lambda torch, x: x.reshape(6, 4),
        onnx=False,
    ),
    case("Flatten", "", [(2, 3, 4)], onnx_op("flatten", 2), lambda torch, x: x.reshape(6, 4)),
    case("Transpose", "", [(2, 3, 4)], onnx_op("transpose", [2, 0, 1]), lambda torch, x: x.permute(2, 0, 1)),
    case("Transpose", "all axes", [(2, 3, 4)], onnx_op("transpose"), lambda torch, x: x.permute(2, 1, 0)),
    case("Cast", "", [(3, 4)], onnx_op("cast", "FLOAT"), lambda torch, x: x),
    case("ReduceSum", "all", [(2, 3, 4)], onnx_op("reducesum", None, 0), lambda torch, x: x.sum()),
    case(
        "ReduceSum", "axes", [(2, 3, 4)], onnx_op("reducesum", [0, -1]), lambda torch, x: x.sum((0, 2), keepdim=True)
    ),
    case("ReduceSum", "dropped", [(2, 3, 4)], onnx_op("reducesum", [1], 0), lambda torch, x: x.sum(1)),
    case(
        "ReduceMean",
        "axes",
        [(2, 3, 4)],
        onnx_op("reducemean", [1, 2]),
        lambda torch, x: x.mean((1, 2), keepdim=True),
    ),
    case("ReduceMean", "dropped", [(2, 3, 4)], onnx_op("reducemean", [0], 0), lambda torch, x: x.mean(0)),
    case("MatMul", "matrices", [(3, 4), (4, 5)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "batch by matrix", [(2, 3, 4), (4, 5)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "batches", [(2, 3, 4), (2, 4, 5)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "broadcast", [(2, 1, 3, 4), (3, 4, 2)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "vectors", [(4,), (4,)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "matrix by vector", [(3, 4), (4,)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    case("MatMul", "vector by batch", [(4,), (2, 4, 3)], onnx_op("matmul"), lambda torch, a, b: a @ b),
    gemm("bias", (3, 4), (4, 5), (5,)),
    gemm("all", (4, 3), (5, 4), (3, 1), alpha=0.5, beta=2.0, transA=1, transB=1),
    gemm("transA", (4, 3), (4, 5), (3, 5), transA=1),
    gemm("transB", (3, 4), (5, 4), (), transB=1),
    conv("plain", (2, 3, 5, 6), (4, 3, 3, 3)),
    conv("bias and pads", (3, 2, 4, 5), (3, 2, 3, 2), True, pads=[1, 0, 2, 1]),
    conv("strides", (2, 2, 7, 6), (3, 2, 3, 3), pads=[1, 1, 1, 1], strides=[2, 3]),
    conv("dilations", (2, 2, 8, 7), (2, 2, 3, 2), pads=[2, 0, 1, 3], dilations=[2, 3]),
    conv("groups", (2, 4, 5, 5), (6, 2, 3, 3), True, group=2, pads=[1, 1, 1, 1]),
    conv("pointwise", (2, 3, 4, 4), (5, 3, 1, 1), True),
    conv("pointwise groups", (2, 4, 3, 3), (4, 2, 1, 1), group=2),
    conv("one image", (1, 2, 5, 5), (3, 2, 3, 3), strides=[2, 2]),
    conv("wide pads", (1, 1, 2, 2), (1, 1, 3, 3), pads=[3, 3, 3, 3], strides=[2, 2]),
    max_pool("plain", (2, 3, 4, 6), [2, 2], strides=(2, 2)),
    max_pool("overlapping", (3, 2, 5, 5), [3, 2], pads=(1, 1), strides=(1, 2)),
    max_pool("ceil", (2, 1, 6, 5), [3, 2], strides=(2, 2), ceil=1),
    max_pool("ceil and pads", (2, 1, 4, 5), [2, 3], pads=(1, 1), strides=(2, 3), ceil=1),
    max_pool("one image", (1, 1, 4, 4), [2, 2], strides=(2, 2)),
    average_pool("plain", (2, 3, 4, 6), [2, 2], (0, 0), (2, 2), 0),
    average_pool("pads", (2, 2, 5, 5), [3, 3], (1, 1), (2, 2), 0),
    average_pool("counted pads", (2, 2, 5, 5), [3, 3], (1, 1), (2, 2), 1),
    case("Softmax", "rows", [(3, 5)], onnx_op("softmax"), lambda torch, x: x.softmax(1)),
    case(
        "Softmax",
        "axis 1 of 3",
        [(2, 3, 4)],
        onnx_op("softmax", 1),
        lambda torch, x: flat_softmax(torch, x, 1, "softmax"),
        onnx=False,
    ),
    case("Softmax", "last axis", [(2, 3, 4)], onnx_op("softmax", 2), lambda torch, x: x.softmax(-1)),
    case("LogSoftmax", "rows", [(3, 5)], onnx_op("logsoftmax"), lambda torch, x: x.log_softmax(1)),
    case("LogSoftmax", "last axis", [(2, 3, 4)], onnx_op("logsoftmax", 2), lambda torch, x: x.log_softmax(-1)),
    *(l1(reduction.name, reduction) for reduction in (Sum, Mean, NoReduction)),
    case("IdentityLoss", "Sum", [(3, 4)], graphcore_op("identityloss", Sum), lambda torch, x: x.sum()),
    case("IdentityLoss", "Mean", [(3, 4)], graphcore_op("identityloss", Mean), lambda torch, x: x.mean()),
    case("IdentityLoss", "NoReduction", [(3, 4)], graphcore_op("identityloss", NoReduction), lambda torch, x: x),
    *(nll(reduction.name, reduction) for reduction in (Sum, Mean, NoReduction)),
    nll("rank 3", Mean, shape=(2, 3, 4)),
    nll("ignored", Mean, 1),
    nll("ignored, no reduction", NoReduction, 2),
    nll("logarithms", Mean, is_log=True),
    case(
        "Softmax Nll",
        "fused",
        [(6, 4)],
        softmax_nll,
        lambda torch, x, labels: torch.nn.functional.cross_entropy(x, labels.long()),
        labels=np.array([0, 3, 1, 1, 2, 0], np.int32),
    ),
    *ELEMENTS,
    *GRAPHCORE,
    *LAYERS,
    *PLACES,
    *RARE,
    *WINDOWS,
    *MATRICES,
]
