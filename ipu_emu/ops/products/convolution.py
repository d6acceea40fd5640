"""Convolution: direct (see ``direct_convolution``), or with gathered windows (see ``gathered_convolution``)."""

from __future__ import annotations

from math import prod

from ipu_emu.errors import RefusedError
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, flops, listed
from ipu_emu.ops.core.kernel_helpers import in_float32
from ipu_emu.ops.core.shape_rules import shape_attribute
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.core.spatial_rank import convolution_as_2d
from ipu_emu.ops.products.direct_convolution import Direct
from ipu_emu.ops.products.gathered_convolution import Gathered
from ipu_emu.ops.products.grouped_convolution import Grouped

#: The most pixels of all samples, of the output, for which windows are gathered for a gradient of the data, and of
#: the weights: 512 to 512 channels of 2 x 2 by 3 x 3, batch 8, take 2.8 ms instead of 4.8, and 1.0 ms instead of 3.6.
_FEW_FOR_DATA, _FEW_FOR_WEIGHTS = 96, 512

# Shapes


def _windows(node: Node) -> Windows:
    data, weights = _shapes(node)
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
    return [(x.dtype, (x.shape[0], w.shape[0], *_windows(node).output))]


# Ops


def _direct_way(node: Node) -> Direct | None:
    """The direct convolution, or None unless a row fills a short vector register."""
    data, weights = _shapes(node)
    if 0 in (*data, *weights):
        return None
    sizes, groups = (_windows(node), data[0], data[1], weights[0]), node.attribute("group", 1)
    direct = Direct(*sizes) if groups == 1 else Grouped(*sizes, groups)
    return direct if direct.fits() else None


def _shapes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the data and of the weights."""
    shape = tuple(node.attribute("shape", []))
    if node.op.type == "ConvWeightGrad":
        return node.input(1).shape, shape
    return shape if node.op.type == "ConvDataGrad" else node.input(0).shape, node.input(1).shape


def _way(node: Node) -> Direct | Gathered:
    """The way to compute a convolution or a gradient.

    The direct data gradient of images of few pixels would read all weights for a few products each; the dot products
    of the direct weight gradient would mostly add up the lanes of their vectors.
    """
    direct, (data, weights) = _direct_way(node), _shapes(node)
    windows, groups = _windows(node), node.attribute("group", 1)
    most = {"ConvDataGrad": _FEW_FOR_DATA, "ConvWeightGrad": _FEW_FOR_WEIGHTS}.get(node.op.type, -1)
    few = groups == 1 and data[0] * prod(windows.output) <= most
    if direct is None or few or (node.op.type == "ConvWeightGrad" and not direct.fits_weights()):
        return Gathered(windows, data[0], weights, groups)
    return direct


def _is_direct(node: Node) -> bool:
    return isinstance(_way(node), Direct)


def _conv(bound: BoundOp) -> Call:
    x, w, y = bound.input(0), bound.input(1), bound.outputs[0]
    bias = bound.input(2) if bound.node.has_input(2) else None
    return call_chain(*_way(bound.node).forward(x, w, bias, y, bound.scratch))


def _conv_with(bound: BoundOp, store: FusedStore) -> Call | None:
    """The convolution that stores a function of its results."""
    x, w, y = bound.input(0), bound.input(1), bound.outputs[0]
    direct = _direct_way(bound.node)
    if direct is None or not store.fits(["full"]):
        return None
    bias = bound.input(2) if bound.node.has_input(2) else None
    return call_chain(*direct.forward(x, w, bias, y, bound.scratch, store))


def _data_grad(bound: BoundOp) -> Call:
    g, w, dx = bound.input(0), bound.input(1), bound.outputs[0]
    return call_chain(*_way(bound.node).data_gradient(g, w, dx, bound.scratch))


def _weight_grad(bound: BoundOp) -> Call:
    g, x, dw = bound.input(0), bound.input(1), bound.outputs[0]
    return call_chain(*_way(bound.node).weight_gradient(g, x, dw, bound.scratch))


def _is_half(node: Node) -> bool:
    return node.input(1).dtype is FLOAT16


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


@flops
def _work(node: Node) -> int:
    results = node.outputs[0] if node.op.type == "Conv" else node.input(0)
    return 2 * results.nelms * prod(_shapes(node)[1][1:])


OPS = [
    OpDef(
        "Conv",
        (2, 3),
        _shape,
        in_float32(_conv),
        _work,
        _grad,
        lambda node: _way(node).workspace(half=_is_half(node)),
        batch_innermost=(0, -1),
        takes_half=_is_direct,
        expand=convolution_as_2d,
        fused_store=_conv_with,
    ),
    # ConvDataGrad(g, weights) and ConvWeightGrad(g, data); ``shape`` is that of the result.
    OpDef(
        "ConvDataGrad",
        (2, 2),
        shape_attribute,
        in_float32(_data_grad),
        _work,
        _data_grad_rule,
        lambda node: _way(node).data_workspace(half=_is_half(node)),
        batch_innermost=(0, -1),
        takes_half=_is_direct,
    ),
    OpDef(
        "ConvWeightGrad",
        (2, 2),
        shape_attribute,
        in_float32(_weight_grad),
        _work,
        None,
        lambda node: _way(node).weights_workspace(half=_is_half(node)),
        batch_innermost=(0, 1),
        takes_half=_is_direct,
    ),
]
