"""Convolution: direct (see ``direct_convolution``), or for very short rows as products over gathered windows.

Operands are stored with the batch innermost, [C, H, W, N]: gathering a row of the matrix is then one long copy per
image row, and the product with the [M, C kh kw] weights has the storage order of the result.

    weights [M, C kh kw]  x  columns [C kh kw, rows OW N]  =  y [M, rows OW N]

Rows of the output are taken in blocks, so that the columns of one block stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.errors import RefusedError
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.codegen.compiled_call import relocation
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.core.adjoint import Adjoint, Value
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.core.cost import flops
from ipu_emu.ops.core.kernel_helpers import in_float32, view
from ipu_emu.ops.core.node import Node, OutputTypes, listed
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.core.spatial_rank import convolution_as_2d
from ipu_emu.ops.products.direct_convolution import Direct
from ipu_emu.ops.products.grouped_convolution import Grouped

__all__ = ["OPS"]

# Columns: the windows of a block of output rows gathered into a matrix, and the adjoint of that


def gather_columns(x: NDArray[Any], columns: NDArray[Any], windows: Windows, first: int) -> Call:
    """columns[c, i, j, row, w, n] = x[c, (first + row) sh - ph + i dh, w sw - pw + j dw, n], 0 outside x."""
    (sh, sw), (dh, dw), (ph, pw) = windows.strides, windows.dilations, windows.pads
    rows, width = columns.shape[3:5]
    calls: list[Call] = [partial(columns.fill, 0)] if _reaches_out(windows) else []
    for i in range(windows.kernel[0]):
        y = first * sh - ph + i * dh
        top, bottom = positions_inside(windows.input[0], rows, sh, y)
        for j in range(windows.kernel[1]):
            shift = j * dw - pw
            low, high = positions_inside(windows.input[1], width, sw, shift)
            if bottom > top and high > low:
                source = x[:, y + top * sh :: sh, shift + low * sw :: sw][:, : bottom - top, : high - low]
                calls.append(relocation(source, columns[:, i, j, top:bottom, low:high]))
    return call_chain(*calls)


def _reaches_out(windows: Windows) -> bool:
    """Whether windows reach beyond the image."""
    last = [
        (size - 1) * stride - pad + (taps - 1) * dilation
        for size, stride, pad, taps, dilation in zip(
            windows.output, windows.strides, windows.pads, windows.kernel, windows.dilations, strict=True
        )
    ]
    return any(windows.pads) or any(end >= size for end, size in zip(last, windows.input, strict=True))


def positions_inside(in_width: int, width: int, stride: int, shift: int) -> tuple[int, int]:
    """Output positions [low, high) whose input position w stride + shift lies in [0, in_width)."""
    low = 0 if shift >= 0 else -(shift // stride)
    high = (in_width - 1 - shift) // stride + 1 if in_width > shift else 0
    return min(low, width), min(high, width)


#: For the compiled kernel below.
_positions_inside = jit(positions_inside)


@jit
def scatter_columns(
    columns: NDArray[Any],
    x: NDArray[Any],
    height: int,
    batch: int,
    rows: int,
    first: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
) -> None:
    """The adjoint of ``gather_columns``: add every element of columns to the element of x that it was copied from.

    x is [C H, W N]; columns is [C kh kw rows, OW N]: a row of either is one image row of all samples.
    """
    in_width, width = x.shape[1] // batch, columns.shape[1] // batch
    for line in range(columns.shape[0]):
        k = line // rows
        y = (first + line % rows) * sh - ph + k // kw % kh * dh
        shift = k % kw * dw - pw
        low, high = _positions_inside(in_width, width, sw, shift)
        if y < 0 or y >= height or high <= low:
            continue
        target = x[k // (kh * kw) * height + y]
        run = (high - low) * batch if sw == 1 else batch
        for w in range(low, low + 1 if sw == 1 else high):
            source = columns[line, w * batch : w * batch + run]
            part = target[(w * sw + shift) * batch : (w * sw + shift) * batch + run]
            for n in range(run):
                part[n] += source[n]


@jit
def add_bias(y: NDArray[Any], bias: NDArray[Any]) -> None:
    """Add ``bias`` [M] to the rows of ``y`` [M, n]."""
    for m in range(y.shape[0]):
        b = bias[m]
        for i in range(y.shape[1]):
            y[m, i] += b


#: The most elements of the gathered columns of one block: 1 MiB of float32, half of a typical L2 cache.
_BLOCK = 1 << 18


# Shapes


def _windows(node: Node, data: tuple[int, ...], weights: tuple[int, ...]) -> Windows:
    return Windows.of(node, data[2:], weights[2:])


def _shape(node: Node) -> OutputTypes:
    x, w, group = node.input(0), node.input(1), node.attribute("group", 1)
    if x.rank < 3 or w.rank != x.rank:
        raise node.fail(f"data [N, C, ...] and weights [M, C, ...] must have the same rank, found {x} and {w}")
    if x.dtype != w.dtype:
        raise node.fail(f"inputs have different types, {x} and {w}; cast one of them")
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise node.fail(f"{x} has {x.shape[1]} channels, {w} with group {group} needs {w.shape[1] * group}")
    kernel = list(node.attribute("kernel_shape", []))
    if kernel and kernel != list(w.shape[2:]):
        raise RefusedError(
            f"kernel_shape, {listed(kernel)}, does not match inferred shape from weight input '{w.id}', "
            f"{listed(w.shape[2:])}"
        )
    if node.has_input(2) and node.input(2).shape != w.shape[:1]:
        raise node.fail(f"bias {node.input(2)} must have shape [{w.shape[0]}]")
    return [(x.dtype, (x.shape[0], w.shape[0], *_windows(node, x.shape, w.shape).output))]


def _shape_attribute(node: Node) -> OutputTypes:
    return [(node.input(0).dtype, tuple(node.attribute("shape", [])))]


def _block_rows(windows: Windows, weights: tuple[int, ...], group: int, batch: int) -> int:
    """Output rows per block."""
    row = group * weights[1] * weights[2] * weights[3] * windows.output[1] * batch
    return max(1, min(windows.output[0], _BLOCK // max(row, 1)))


# Ops


class _Blocks:
    """The blocks of one convolution: matrices of its operands and the calls that gather and scatter."""

    def __init__(self, node: Node, x: NDArray[Any], w_shape: tuple[int, ...], y: NDArray[Any], columns: NDArray[Any]):
        self.windows = _windows(node, x.shape, w_shape)
        self.group = node.attribute("group", 1)
        self.batch = x.shape[0]
        self.rows = _block_rows(self.windows, w_shape, self.group, self.batch)
        self.depth = w_shape[1] * w_shape[2] * w_shape[3]
        self.x = x.transpose(1, 2, 3, 0)
        self.lines = view(self.x, (x.shape[1] * x.shape[2], x.shape[3] * x.shape[0]))
        self.line = self.windows.output[1] * self.batch
        self.y = view(
            y.transpose(1, 2, 3, 0), (self.group, w_shape[0] // self.group, self.windows.output[0] * self.line)
        )
        self.columns = columns

    def each(self) -> Iterator[tuple[NDArray[Any], NDArray[Any], Call, Call]]:
        """(columns, y of the block as matrices per group, gather, scatter) for every block."""
        for first in range(0, self.windows.output[0], self.rows):
            rows = min(self.rows, self.windows.output[0] - first)
            y = self.y[:, :, first * self.line : (first + rows) * self.line]
            if self.windows.is_pointwise:
                whole = view(self.x, (self.group, self.depth, self.windows.output[0] * self.line))
                yield whole[:, :, first * self.line : (first + rows) * self.line], y, _nothing, _nothing
                continue
            columns = self.columns[: self.group * self.depth * rows * self.line]
            lines = columns.reshape(self.group * self.depth * rows, self.line)
            taps = (self.x.shape[0], *self.windows.kernel, rows, self.windows.output[1], self.batch)
            place = (self.windows.input[0], self.batch, rows, first, *self.windows.numbers)
            yield (
                columns.reshape(self.group, self.depth, rows * self.line),
                y,
                gather_columns(self.x, columns.reshape(taps), self.windows, first),
                partial(scatter_columns, lines, self.lines, *place),
            )


def _nothing() -> None:
    """The gather of a pointwise convolution, whose input has the layout of the columns."""


def _matrices(w: NDArray[Any], group: int) -> NDArray[Any]:
    return view(w, (group, w.shape[0] // group, w.shape[1] * w.shape[2] * w.shape[3]))


def _direct_way(node: Node, data: tuple[int, ...], weights: tuple[int, ...]) -> Direct | None:
    """The direct convolution, or None unless a row fills a short vector register."""
    if 0 in (*data, *weights):
        return None
    sizes, groups = (_windows(node, data, weights), data[0], data[1], weights[0]), node.attribute("group", 1)
    direct = Direct(*sizes) if groups == 1 else Grouped(*sizes, groups)
    return direct if direct.fits() else None


def _conv(bound: BoundOp) -> Call:
    x, w, y = bound.input(0), bound.input(1), bound.outputs[0]
    direct = _direct_way(bound.node, x.shape, w.shape)
    if direct:
        bias = bound.input(2) if bound.node.has_input(2) else None
        return call_chain(*direct.forward(x, w, bias, y, bound.scratch))
    blocks = _Blocks(bound.node, x, w.shape, y, bound.scratch[0])
    weights = _matrices(w, blocks.group)
    steps: list[Call] = []
    for columns, part, gather_block, _ in blocks.each():
        steps += [gather_block, partial(np.matmul, weights, columns, part)]
    if bound.node.has_input(2):
        rows = view(y.transpose(1, 2, 3, 0), (w.shape[0], y.size // w.shape[0]))
        steps.append(partial(add_bias, rows, bound.input(2)))
    return call_chain(*[step for step in steps if step is not _nothing])


def _conv_with(bound: BoundOp, store: FusedStore) -> Call | None:
    """The convolution that stores a function of its results."""
    x, w, y = bound.input(0), bound.input(1), bound.outputs[0]
    direct = _direct_way(bound.node, x.shape, w.shape)
    if direct is None or not store.fits(["full"]):
        return None
    bias = bound.input(2) if bound.node.has_input(2) else None
    return call_chain(*direct.forward(x, w, bias, y, bound.scratch, store))


def _data_grad(bound: BoundOp) -> Call:
    """dx: the product of the transposed weights with dy, scattered."""
    g, w, dx = bound.input(0), bound.input(1), bound.outputs[0]
    direct = _direct_way(bound.node, dx.shape, w.shape)
    if direct:
        return call_chain(*direct.data_gradient(g, w, dx, bound.scratch))
    blocks = _Blocks(bound.node, dx, w.shape, g, bound.scratch[0])
    weights = _matrices(w, blocks.group).transpose(0, 2, 1)
    steps: list[Call] = [] if blocks.windows.is_pointwise else [partial(dx.fill, 0)]
    for columns, part, _, scatter_block in blocks.each():
        steps += [partial(np.matmul, weights, part, columns), scatter_block]
    return call_chain(*[step for step in steps if step is not _nothing])


def _weight_grad(bound: BoundOp) -> Call:
    """dw: the product of the columns with the transposed dy, added up over the blocks in their order.

    Computed as its transpose: OpenBLAS then transposes the narrower operand, which takes 30 % less time.
    """
    g, x, dw = bound.input(0), bound.input(1), bound.outputs[0]
    direct = _direct_way(bound.node, x.shape, dw.shape)
    if direct and direct.fits_weights():
        return call_chain(*direct.weight_gradient(g, x, dw, bound.scratch))
    blocks = _Blocks(bound.node, x, dw.shape, g, bound.scratch[0])
    total = _matrices(dw, blocks.group).transpose(0, 2, 1)
    product = view(bound.scratch[1], total.shape)
    steps: list[Call] = []
    for number, (columns, part, gather_block, _) in enumerate(blocks.each()):
        steps += [gather_block, partial(np.matmul, columns, part.transpose(0, 2, 1), product)]
        steps.append(partial(np.add, total, product, total) if number else partial(np.copyto, total, product))
    return call_chain(*[step for step in steps if step is not _nothing])


def _columns(node: Node, data: tuple[int, ...], weights: tuple[int, ...]) -> int:
    windows, group = _windows(node, data, weights), node.attribute("group", 1)
    rows = _block_rows(windows, weights, group, data[0])
    depth = group * weights[1] * weights[2] * weights[3]
    return 0 if windows.is_pointwise else depth * rows * windows.output[1] * data[0]


def _conv_workspace(node: Node) -> list[int]:
    x, w = node.input(0), node.input(1)
    direct = _direct_way(node, x.shape, w.shape)
    return direct.workspace(half=x.dtype is FLOAT16) if direct else [_columns(node, x.shape, w.shape)]


def _data_grad_workspace(node: Node) -> list[int]:
    shape, w = tuple(node.attribute("shape", [])), node.input(1)
    direct = _direct_way(node, shape, w.shape)
    return direct.data_workspace(half=w.dtype is FLOAT16) if direct else [_columns(node, shape, w.shape)]


def _weight_grad_workspace(node: Node) -> list[int]:
    x, shape = node.input(1), tuple(node.attribute("shape", []))
    direct = _direct_way(node, x.shape, shape)
    if direct and direct.fits_weights():
        return direct.weights_workspace(half=x.dtype is FLOAT16)
    return [_columns(node, x.shape, shape), node.outputs[0].nelms]


def _takes_halves(node: Node) -> bool:
    return _direct_way(node, node.input(0).shape, node.input(1).shape) is not None


def _data_grad_takes_halves(node: Node) -> bool:
    return _direct_way(node, node.outputs[0].shape, node.input(1).shape) is not None


def _weight_grad_takes_halves(node: Node) -> bool:
    direct = _direct_way(node, node.input(1).shape, node.outputs[0].shape)
    return direct is not None and direct.fits_weights()


def _grad(d: Adjoint) -> list[Value | None]:
    x, w = d.inputs[0], d.inputs[1]
    dx = d.g.op("ConvDataGrad", w, shape=list(x.tensor.shape), **d.node.op.attributes)
    dw = d.g.op("ConvWeightGrad", x, shape=list(w.tensor.shape), **d.node.op.attributes)
    if len(d.inputs) < 3:
        return [dx, dw]
    return [dx, dw, d.g.op("ReduceSum", axes=[0, 2, 3], keepdims=0)]


def _data_grad_rule(d: Adjoint) -> list[Value | None]:
    """The gradients of a transposed convolution: a convolution for the data, and its weight gradient."""
    x, w = d.inputs
    attributes = {name: value for name, value in d.node.op.attributes.items() if name != "shape"}
    return [d.g.op("Conv", w, **attributes), x.op("ConvWeightGrad", d.g, shape=list(w.tensor.shape), **attributes)]


def _conv_flops(node: Node) -> int:
    w = node.input(1).shape
    return 2 * node.outputs[0].nelms * w[1] * w[2] * w[3]


def _data_grad_flops(node: Node) -> int:
    w = node.input(1).shape
    return 2 * node.input(0).nelms * w[1] * w[2] * w[3]


def _weight_grad_flops(node: Node) -> int:
    w = node.outputs[0].shape
    return 2 * node.input(0).nelms * w[1] * w[2] * w[3]


OPS = [
    OpDef(
        "Conv",
        (2, 3),
        _shape,
        in_float32(_conv),
        flops(_conv_flops),
        _grad,
        _conv_workspace,
        batch_innermost=(0, -1),
        takes_half=_takes_halves,
        expand=convolution_as_2d,
        fused_store=_conv_with,
    ),
    # ConvDataGrad(g, weights) and ConvWeightGrad(g, data); ``shape`` is that of the result.
    OpDef(
        "ConvDataGrad",
        (2, 2),
        _shape_attribute,
        in_float32(_data_grad),
        flops(_data_grad_flops),
        _data_grad_rule,
        _data_grad_workspace,
        batch_innermost=(0, -1),
        takes_half=_data_grad_takes_halves,
    ),
    OpDef(
        "ConvWeightGrad",
        (2, 2),
        _shape_attribute,
        in_float32(_weight_grad),
        flops(_weight_grad_flops),
        None,
        _weight_grad_workspace,
        batch_innermost=(0, 1),
        takes_half=_weight_grad_takes_halves,
    ),
]
