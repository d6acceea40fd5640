"""Batch normalisation: each channel is normalised by its statistics over a batch.

    training    BatchNormalization  ->  BatchNormTrain, and RunningMean for the mean and the variance
    inference   BatchNormalization  ->  BatchNormInfer

Channels are rows in the order [C, H, W, N] in which they are stored. A training op with the attribute
``__batch_norm_replica_group_size`` = s > 1 shares its statistics between s consecutive replicas (see
``shared_batch_norm``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.communication.collective_ops import MEAN
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Rewrite, Value, call_chain, listed, per_element
from ipu_emu.ops.core.kernel_helpers import channel_rows, epsilon_of, in_float32, running_mean, scalar, storage
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef, always
from ipu_emu.ops.core.row_kernels import norm, norm_grad
from ipu_emu.ops.core.shape_rules import norm_gradients, same
from ipu_emu.ops.normalisation.shared_batch_norm import GROUP_SIZE, MOMENTS, SHARED, mean_of_group


def _batch_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank < 2:
        raise node.fail(f"data must be [N, C, ...], found {x}")
    spatial = bool(node.attribute("spatial", 1))
    wanted = x.shape[1:2] if spatial else x.shape[1:]
    for index in range(1, len(node.inputs)):
        if node.input(index).shape != wanted:
            tensor = node.input(index)
            which = "dimension 1" if spatial else "all but the first dimension"
            raise EmulatorError(
                f"expected shape of batch norm input tensor {tensor.id} ({listed(tensor.shape)}) to be "
                f"{listed(wanted)} to match {which} of X ({listed(x.shape)})"
            )
    types = [(x.dtype, x.shape)]
    if len(node.op.outputs) == 1:
        return types
    if len(node.op.outputs) == 3 and node.attribute("training_mode", 0):  # from opset 14 on
        return types + [(node.input(index).dtype, wanted) for index in (3, 4)]
    if len(node.op.outputs) not in (0, 5):
        raise node.fail(f"{len(node.op.outputs)} outputs are named; name 1 (inference) or 5 (training)")
    return types + [(node.input(index).dtype, wanted) for index in (3, 4, 3, 4)]


def _batch_expand(rewrite: Rewrite, node: Node) -> None:
    """Training if the op has outputs for running statistics, else inference."""
    op, replicas = node.op, int(node.attribute(GROUP_SIZE, 1))
    if not node.attribute("spatial", 1):
        _per_feature(rewrite, node)
    elif _is_inference(op):
        own = {name: value for name, value in op.attributes.items() if name == "epsilon" or name.startswith("__")}
        rewrite.ops.append(_instead(op, "BatchNormInfer", op.inputs, op.outputs[:1], own))
    elif replicas > 1:
        _shared(rewrite, node, replicas)
        rewrite.ops += _running(node, replicas)
    else:
        rewrite.ops += [_own(rewrite.graph, op), *_running(node, replicas)]


def _is_inference(op: Op) -> bool:
    return all("/unused/" in id for id in op.outputs[1:])


def _per_feature(rewrite: Rewrite, node: Node) -> None:
    """The ops of ``spatial = 0``: every feature is a channel of its own, with statistics over the batch only."""
    op, shape = node.op, node.input(0).shape
    features, count = int(np.prod(shape[1:], dtype=np.int64)), shape[0]
    x = rewrite.op("ReshapeTo", op.inputs[0], shape=[count, features, 1])
    others = [rewrite.op("ReshapeTo", id, shape=[features]) for id in op.inputs[1:]]
    epsilon = {"epsilon": op.attributes.get("epsilon", 1e-5)}
    if _is_inference(op):
        y = rewrite.op("BatchNormInfer", x, *others, **epsilon)
        rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=list(shape))
        return
    y = rewrite.op("BatchNormTrain", x, *others[:2], outputs=4, **epsilon)
    rewrite.op("ReshapeTo", y, into=op.outputs[0], shape=list(shape))
    for index, id in enumerate(_statistics(op), 1):
        rewrite.op("ReshapeTo", f"{y}/{index}", into=id, shape=list(shape[1:]))
    rewrite.ops += _running(node, 1)


def _statistics(op: Op) -> tuple[str, str]:
    """The ids of mean and variance of the batch."""
    y = op.outputs[0]
    mean, variance = op.outputs[3:] or (f"{y}/mean", f"{y}/variance")
    return mean, variance


def _own(graph: Graph, op: Op) -> Op:
    """The op that normalises by the statistics of one replica's batch."""
    x, scale, bias = op.inputs[:3]
    inverse = graph.unused(f"{op.outputs[0]}/inverse")
    graph.add(type(graph.tensor(scale))(inverse, FLOAT, graph.tensor(scale).shape))
    attributes = op.annotations | {"epsilon": op.attributes.get("epsilon", 1e-5)}
    outputs = (op.outputs[0], *_statistics(op), inverse)
    return _instead(op, "BatchNormTrain", (x, scale, bias), outputs, attributes)


def _shared(rewrite: Rewrite, node: Node, replicas: int) -> None:
    """Normalise by FLOAT statistics of ``replicas`` batches."""
    op, kind = node.op, node.input(1).dtype
    x, scale, bias = op.inputs[:3]
    moments = rewrite.op(MEAN, rewrite.op(MOMENTS, x), **mean_of_group(replicas))
    attributes = {GROUP_SIZE: replicas, "epsilon": op.attributes.get("epsilon", 1e-5)}
    y = rewrite.op(SHARED, x, scale, bias, moments, into=op.outputs[0], outputs=4, **attributes)
    for index, id in enumerate(_statistics(op), 1):
        rewrite.op("Identity" if kind is FLOAT else "Cast", f"{y}/{index}", into=id, to=kind.onnx)


def _running(node: Node, replicas: int) -> list[Op]:
    """The ops that update running statistics; aiGraphcore uses the sample variance (divisor n - 1)."""
    op, data, momentum = node.op, node.input(0), node.attribute("momentum", 0.9)
    count = replicas * (data.nelms // max(data.shape[1], 1) if node.attribute("spatial", 1) else data.shape[0])
    unbiased = count / max(count - 1, 1) if op.domain == GRAPHCORE else 1.0
    takes = (1 - momentum, (1 - momentum) * unbiased)
    rows = zip(op.inputs[3:5], _statistics(op), op.outputs[1:3], takes, strict=True)
    return [
        _instead(op, "RunningMean", (old, batch), (new,), op.annotations | {"keep": momentum, "take": take})
        for old, batch, new, take in rows
    ]


def _instead(op: Op, type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: dict[str, Any]) -> Op:
    """A new op with the annotations, phase and guard of ``op``."""
    return replace(op, type=type, inputs=inputs, outputs=outputs, attributes=attributes, domain="", version=10)


def _train_shape(node: Node) -> OutputTypes:
    x, scale = node.input(0), node.input(1)
    return [(x.dtype, x.shape), (scale.dtype, scale.shape), (scale.dtype, scale.shape), (FLOAT, scale.shape)]


def _batch_train(bound: BoundOp) -> Call:
    x, scale, bias = (bound.input(i) for i in range(3))
    y, mean, variance, inverse = bound.outputs
    return norm(
        "row", *channel_rows(x), epsilon_of(bound.node), x=storage(x), scale=scale, bias=bias, y=storage(y),
        mean=mean, variance=variance, inverse=inverse,
    )  # fmt: skip


def _batch_grad(bound: BoundOp) -> Call:
    g, x, scale, mean, inverse = (bound.input(i) for i in range(5))
    dx, dscale, dbias = bound.outputs
    return norm_grad(
        "row", *channel_rows(x), g=storage(g), x=storage(x), scale=scale, mean=mean, inverse=inverse, dx=storage(dx),
        dscale=dscale, dbias=dbias,
    )  # fmt: skip


def _running_mean(bound: BoundOp) -> Call:
    return running_mean(bound, *(scalar(bound.node.attribute(name, 0.0)) for name in ("keep", "take")))


def _batch_infer(bound: BoundOp) -> Call:
    """y = factor x + shift, with one factor and one shift per channel."""
    x, scale, bias, mean, variance = (bound.input(i) for i in range(5))
    y, (factor, shift) = bound.outputs[0], bound.scratch
    epsilon, shape = scalar(epsilon_of(bound.node)), (1, -1, *(1,) * (x.ndim - 2))
    return call_chain(
        partial(np.add, variance, epsilon, factor),
        partial(np.sqrt, factor, factor),
        partial(np.divide, scale, factor, factor),
        partial(np.multiply, mean, factor, shift),
        partial(np.subtract, bias, shift, shift),
        partial(np.multiply, x, factor.reshape(shape), y),
        partial(np.add, y, shift.reshape(shape), y),
    )


def _infer_grad(d: Adjoint) -> list[Value | None]:
    shape = (1, d.shape[1], *(1,) * (len(d.shape) - 2))
    scale, bias, mean, variance = (d.input(i) for i in range(1, 5))
    deviation = (variance + epsilon_of(d.node)).op("Sqrt").shaped(shape)
    shifted = (d.x - mean.shaped(shape)) / deviation
    return [
        d.g * (scale.shaped(shape) / deviation),
        (d.g * shifted).summed_to(shape).shaped(scale.tensor.shape),
        d.g.summed_to(shape).shaped(bias.tensor.shape),
    ]


_cost = per_element(8)

OPS = [
    OpDef("BatchNormalization", (5, 5), _batch_shape, _batch_infer, _cost, expand=_batch_expand),
    OpDef("BatchNormalization", (5, 5), _batch_shape, _batch_infer, _cost, expand=_batch_expand, domain=GRAPHCORE),
    OpDef(
        "BatchNormTrain",
        (3, 3),
        _train_shape,
        in_float32(_batch_train),
        _cost,
        lambda d: d.g.ops(3, "BatchNormGrad", d.x, d.input(1), d.outputs[1], d.outputs[3]),
        batch_innermost=(0, 3),
        takes_half=always,
    ),
    # BatchNormGrad(g, x, scale, mean, inverse) -> dx, dscale, dbias
    OpDef(
        "BatchNormGrad",
        (5, 5),
        norm_gradients,
        in_float32(_batch_grad),
        _cost,
        batch_innermost=(0, 1, 5),
        takes_half=always,
    ),
    # RunningMean(old, batch): keep old + take batch, in place
    OpDef(
        "RunningMean",
        (2, 2),
        same,
        _running_mean,
        per_element(3),
        workspace=lambda node: [node.input(1).nelms],
        updates=(0,),
    ),
    OpDef(
        "BatchNormInfer",
        (5, 5),
        same,
        _batch_infer,
        per_element(2),
        _infer_grad,
        workspace=lambda node: [node.input(1).nelms] * 2,
        elementwise=True,
    ),
]
