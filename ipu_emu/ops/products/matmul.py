"""Matrix product: MatMul and Gemm."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, RefusedError
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.gemm import fits_strips, gemm, gemm_workspace
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Value, call_chain, flops, listed
from ipu_emu.ops.core.kernel_helpers import scalar
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef, always
from ipu_emu.ops.core.shape_rules import unequal_types


def _turned(shape: tuple[int, ...], transpose: int) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose and len(shape) > 1 else shape


def _matmul_shape(node: Node) -> OutputTypes:
    a, b = node.input(0), node.input(1)
    left = _turned(a.shape, node.attribute("transA", 0))
    right = _turned(b.shape, node.attribute("transB", 0))
    if a.dtype != b.dtype:
        raise unequal_types(node, a, b)
    for tensor, side in ((a, "lhs"), (b, "rhs")):
        if not tensor.shape:
            raise EmulatorError(f"{node.described} doesn't support scalar tensor {tensor.id} as the {side} input")
    if left[-1] != right[max(len(right) - 2, 0)]:
        raise EmulatorError(
            f"{node.described} contracting dimensions unequal: lhs '{a.id}' {listed(left)}, rhs '{b.id}' "
            f"{listed(right)}"
        )
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise node.fail(f"cannot multiply {a} by {b}: the outer dimensions do not broadcast") from None
    rows = left[-2:-1] if len(left) > 1 else ()
    return [(a.dtype, (*batch, *rows, *(right[-1:] if len(right) > 1 else ())))]


def _operands(bound: BoundOp) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = bound.input(0), bound.input(1)
    a = np.swapaxes(a, -1, -2) if bound.node.attribute("transA", 0) and a.ndim > 1 else a
    return a, np.swapaxes(b, -1, -2) if bound.node.attribute("transB", 0) and b.ndim > 1 else b


def _product(bound: BoundOp) -> list[Call]:
    return gemm(*_matrices(bound), bound.scratch, held=bound.held_of(1))


def _matrices(bound: BoundOp) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The operands and the result, with two axes at least."""
    (a, b), y = _operands(bound), bound.outputs[0]
    if b.ndim == 1:
        b, y = b[:, None], y[..., None]
    if a.ndim == 1:
        a, y = a[None], y[..., None, :]
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous and y.flags.c_contiguous:
        # One large product is faster than one per row of the batch.
        a, y = a.reshape(-1, a.shape[-1]), y.reshape(-1, y.shape[-1])
    return a, b, y


def _matmul_with(bound: BoundOp, store: FusedStore) -> Call | None:
    """The product with a matrix that no step changes, if it stores a function of its results."""
    (a, b, y), held = _matrices(bound), bound.held_of(1)
    if held is None or not fits_strips(a, b, y) or not store.fits(["full", "column"]):
        return None
    return call_chain(*gemm(a, b, y, bound.scratch, held=held, store=store))


def _matmul_workspace(node: Node) -> list[int]:
    a, b, y = node.input(0).shape, node.input(1).shape, node.outputs[0].shape
    left = _turned(a, node.attribute("transA", 0))
    right = _turned(b, node.attribute("transB", 0))
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    half = node.outputs[0].dtype is FLOAT16
    sizes = [(rows, prod(y) // max(rows * columns, 1))]
    if len(right) == 2 and len(left) > 2:
        sizes.append((prod(y) // max(columns, 1), 1))
    workspaces = [gemm_workspace(m, left[-1], columns, batch, half=half) for m, batch in sizes]
    return [max(sizes) for sizes in zip(*workspaces, strict=True)]


def _matmul_grad(d: Adjoint) -> list[Value | None]:
    return _factor_gradients(d, d.g)


def _factor_gradients(d: Adjoint, g: Value) -> list[Value | None]:
    """The gradients of A and B from that of A' B'; A' is A or its transpose, as attributes say."""
    a, b = d.inputs[0], d.inputs[1]
    left, right = a.tensor.shape, b.tensor.shape
    trans_a, trans_b = d.attribute("transA", 0), d.attribute("transB", 0)
    if len(left) == 1 or len(right) == 1:
        a, b = a.shaped(_matrix(left, row=True)), b.shaped(_matrix(right, row=False))
        first, second = _turned(a.tensor.shape, trans_a), _turned(b.tensor.shape, trans_b)
        g = g.shaped((*np.broadcast_shapes(first[:-2], second[:-2]), first[-2], second[-1]))
    if trans_a:
        da = b.op("MatMulT", g, transA=trans_b, transB=1)
    else:
        da = g.op("MatMulT", b, transB=1 - trans_b)
    if len(right) == 2 and len(left) > 2 and not trans_a:
        # One large product is faster than the sum of one per matrix of the batch.
        rows = prod(left[:-1])
        a, g = a.shaped((rows, left[-1])), g.shaped((rows, g.tensor.shape[-1]))
    if trans_b:
        db = g.op("MatMulT", a, transA=1, transB=trans_a)
    else:
        db = a.op("MatMulT", g, transA=1 - trans_a)
    da, db = da.summed_to(_matrix(left, row=True)), db.summed_to(_matrix(right, row=False))
    return [da.shaped(left), db.shaped(right)]


def _matrix(shape: tuple[int, ...], *, row: bool) -> tuple[int, ...]:
    if len(shape) > 1:
        return shape
    return (1, *shape) if row else (*shape, 1)


def _gemm_shape(node: Node) -> OutputTypes:
    a, b = node.input(0), node.input(1)
    if len(node.op.inputs) < 3 and node.op.version < 11:
        raise RefusedError(f"Gemm has invalid number of inputs {len(node.op.inputs)}. Must be between 3..3")
    if a.rank != 2 or b.rank != 2:
        raise node.fail(f"inputs must be matrices, found {a} and {b}")
    types = _matmul_shape(node)
    if node.has_input(2):
        c, shape = node.input(2), types[0][1]
        if c.rank > 2 or any(n not in (1, m) for n, m in zip(c.shape[::-1], shape[::-1], strict=False)):
            raise node.fail(f"{c} does not broadcast to {list(shape)}")
    return types


def _gemm_with(bound: BoundOp, store: FusedStore) -> Call | None:
    """The product plus bias with a matrix that no step changes, if it stores a function of its results."""
    (a, b), held = _operands(bound), bound.held_of(1)
    fits = held is not None and _is_plain(bound.node) and fits_strips(a, b, bound.outputs[0])
    return _gemm(bound, store) if fits and store.fits(["full", "column"]) else None


def _gemm(bound: BoundOp, store: FusedStore | None = None) -> Call:
    a, b = _operands(bound)
    y, alpha = bound.outputs[0], bound.node.attribute("alpha", 1.0)
    *scratch, result, bias = bound.scratch
    steps: list[Call] = []
    if bound.node.has_input(2):
        addend, beta = bound.input(2), bound.node.attribute("beta", 1.0)
        if beta == 1 and addend.dtype == np.float32 and addend.flags.c_contiguous:
            bias = addend
        else:
            bias = bias.reshape(addend.shape)
            steps.append(partial(np.multiply, addend, scalar(beta), bias) if beta else partial(bias.fill, 0))
    if _is_plain(bound.node):
        added = bias.reshape(-1) if bias.size else None
        return call_chain(*steps, *gemm(a, b, y, scratch, added, held=bound.held_of(1), store=store))
    result = y if y.dtype == np.float32 else result.reshape(y.shape)
    steps += [*gemm(a, b, result, scratch), partial(np.multiply, result, scalar(alpha), result)]
    if bias.size:
        steps.append(partial(np.add, result, bias, result))
    if result is not y:
        steps.append(partial(np.copyto, y, result, casting="same_kind"))
    return call_chain(*steps)


def _is_plain(node: Node) -> bool:
    """Whether the op is the product plus at most a bias per column, with alpha = 1."""
    columns = node.outputs[0].shape[1]
    fits = not node.has_input(2) or node.input(2).shape in ((columns,), (1, columns))
    return fits and node.attribute("alpha", 1.0) == 1


def _gemm_workspace(node: Node) -> list[int]:
    y = node.outputs[0]
    result = y.nelms if y.dtype is FLOAT16 and not _is_plain(node) else 0
    return [*_matmul_workspace(node), result, node.input(2).nelms if node.has_input(2) else 0]


def _gemm_grad(d: Adjoint) -> list[Value | None]:
    """y = alpha A' B' + beta C"""
    gradients = _factor_gradients(d, d.g.scaled(d.attribute("alpha", 1.0)))
    if len(d.inputs) < 3:
        return gradients
    return [*gradients, d.g.scaled(d.attribute("beta", 1.0)).summed_to(d.inputs[2].tensor.shape)]


def _products(node: Node) -> int:
    inner = _turned(node.input(0).shape, node.attribute("transA", 0))[-1]
    return 2 * inner * node.outputs[0].nelms


def _entry(type: str) -> OpDef:
    return OpDef(
        type,
        (2, 2),
        _matmul_shape,
        lambda bound: call_chain(*_product(bound)),
        flops(_products),
        _matmul_grad,
        _matmul_workspace,
        takes_half=always,
        fused_store=_matmul_with,
    )


OPS = [
    _entry("MatMul"),
    OpDef(
        "Gemm",
        (2, 3),
        _gemm_shape,
        _gemm,
        flops(_products),
        _gemm_grad,
        _gemm_workspace,
        takes_half=always,
        fused_store=_gemm_with,
    ),
    # MatMulT(a, b, transA, transB): a product with the last two axes of either operand exchanged.
    _entry("MatMulT"),
]
