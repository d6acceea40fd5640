"""Products: matrix products, convolutions and distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_emu.graph.dtype import BOOL
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, batched, in_float, listed, raised, root


def _product(call: Call, a: Value, b: Value) -> Value:
    """The product of matrices; a transposed weight is read in its stored order."""
    source = call.writer.transposed.get(b.tensor.id)
    if source is not None and a.tensor.rank == 2 and source.tensor.dtype is a.tensor.dtype:
        return a.op("Gemm", source, transB=1)
    return a.op("MatMul", b.cast(a.tensor.dtype))


def _matmul(second: str) -> Rule:
    return lambda call: _product(call, call.x, call.value(second))


def _addmm(first: str, second: str, *, multiplies_by_zero: bool = False) -> Rule:
    def rule(call: Call) -> Value:
        a, b = call.value(first), call.value(second)
        alpha, beta = call.get("alpha", 1), call.get("beta", 1)
        other = call.value("self").cast(a.tensor.dtype)
        if alpha == 0 and not multiplies_by_zero:  # NaN and infinity in the matrices do not count
            return (other.like(0.0) if beta == 0 else other if beta == 1 else other.scaled(beta)).spread_to(
                call.shape
            )
        product = _product(call, a, b)
        if alpha != 1:
            product = product.scaled(alpha)
        if beta == 0:
            return product
        return product + (other if beta == 1 else other.scaled(beta))

    return rule


def _linear(call: Call) -> Value:
    x, weight, bias = call.value("input"), call.value("weight"), call.optional("bias")
    rank = weight.tensor.rank
    product = _product(call, x, weight.op("Transpose", perm=[1, 0]) if rank == 2 else weight)
    return product if bias is None else product + bias.cast(product.tensor.dtype)


def _outer(call: Call) -> Value:
    a, b = call.common("self", "vec2")
    return a.shaped((-1, 1)) * b.shaped((1, -1))


def _convolution(call: Call) -> Value:
    x, w, bias = call.x, call.value("weight"), call.optional("bias")
    w = w.cast(x.tensor.dtype)
    bias = None if bias is None else bias.cast(x.tensor.dtype)
    spatial = w.tensor.rank - 2
    strides, pads, dilations = (listed(call[name], spatial) for name in ("stride", "padding", "dilation"))
    attributes: dict[str, Any] = {
        "strides": strides,
        "pads": [*pads, *pads],
        "dilations": dilations,
        "group": int(call.get("groups", 1)),
    }
    type, padding = "Conv", listed(call.get("output_padding", 0), spatial)
    if call.get("transposed", False):
        type, attributes["output_padding"] = "ConvTranspose", padding
    inputs = [batched(x, spatial), w] if bias is None else [batched(x, spatial), w, bias]
    return call.writer.emit(type, inputs, attributes)[0].shaped(call.shape)


def _einsum(call: Call) -> Value:
    operands = [call.of(tensor) for tensor in call["tensors"]]
    return operands[0].op("Einsum", *operands[1:], equation=call["equation"].replace(" ", ""))


def _bilinear(call: Call) -> Value:
    """The product of expanded tensors in ``torch.bilinear``."""

    def expanded(number: int) -> Value:
        value = call.value(f"i{number}")
        for axis in sorted(call[f"expand{number}"]):
            shape = value.tensor.shape
            value = value.shaped((*shape[:axis], 1, *shape[axis:]))
        return value

    product = expanded(1) * expanded(2) * expanded(3)
    return product.op("ReduceSum", axes=[int(axis) for axis in call["sumdim"]], keepdims=0)


def _cdist(call: Call) -> Value:
    a, b = call.value("x1"), call.value("x2")
    p = float(call.get("p", 2))
    left = a.shaped((*a.tensor.shape[:-1], 1, a.tensor.shape[-1]))
    right = b.shaped((*b.tensor.shape[:-2], 1, *b.tensor.shape[-2:]))
    size = (left - right).op("Abs")
    along = {"axes": [size.tensor.rank - 1], "keepdims": 0}
    if p == 1:
        return size.op("ReduceSum", **along)
    if p == 2:
        return root((size * size).op("ReduceSum", **along))
    if p == float("inf"):
        return size.op("ReduceMax", **along)
    if p == 0:
        return size.cast(BOOL).cast(size.tensor.dtype).op("ReduceSum", **along)
    return root(raised(size, p).op("ReduceSum", **along), 1 / p)


def _cross(call: Call) -> Value:
    a, b = call.common("self", "other")
    axis = call.axis("dim", -1)

    def turned(x: Value, first: int) -> Value:
        places = call.constant([first % 3, (first + 1) % 3, (first + 2) % 3], "int32")
        return x.op("Gather", places, axis=axis)

    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)


def _cosine_similarity(call: Call) -> Value:
    a, b = call.common("x1", "x2")
    epsilon = float(call.get("eps", 1e-8))
    axis = int(call.get("dim", 1)) % max(a.tensor.rank, b.tensor.rank)
    shape = np.broadcast_shapes(a.tensor.shape, b.tensor.shape)
    a, b = a.spread_to(shape), b.spread_to(shape)
    norms = [root(operand.op("ReduceSumSquare", axes=[axis], keepdims=1)) for operand in (a, b)]
    a, b = (operand / norm.op("Max", norm.like(epsilon)) for operand, norm in zip((a, b), norms, strict=True))
    return (a * b).op("ReduceSum", axes=[axis], keepdims=0)


RULES: dict[str, Rule] = {
    "_cdist_forward": in_float(_cdist),
    "_euclidean_dist": in_float(_cdist),
    "_trilinear": _bilinear,
    "addmm": _addmm("mat1", "mat2"),
    "addmv": _addmm("mat", "vec"),
    "baddbmm": _addmm("batch1", "batch2", multiplies_by_zero=True),
    "bmm": _matmul("mat2"),
    "cosine_similarity": in_float(_cosine_similarity),
    "convolution": _convolution,
    "dot": _matmul("tensor"),
    "einsum": _einsum,
    "linalg_cross": _cross,
    "linear": _linear,
    "matmul": _matmul("other"),
    "mm": _matmul("mat2"),
    "mv": _matmul("vec"),
    "outer": _outer,
    "vdot": _matmul("other"),
}
