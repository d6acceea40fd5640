"""Distributions: tensors of uniform, normal, Bernoulli and multinomial random numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT, INT32, DType, dtype_numbered
from ipu_emu.ops.codegen.functions.compiled_functions import cos_of_turns, log
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, expanded_op, per_element
from ipu_emu.ops.core.array_functions import function
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, with_contiguous_operands
from ipu_emu.ops.core.rewrite import Rewrite
from ipu_emu.ops.random.counter_rng import key_in, stream_id_of, stream_of, uniform


@jit
def fill_uniform(key: NDArray[Any], stream_id: int, low: float, high: float, out: NDArray[Any]) -> None:
    """out = uniform numbers from ``low`` to ``high`` ([n])."""
    stream = stream_of(key, stream_id)
    for i in range(out.size):
        out[i] = low + (high - low) * uniform(stream, i)


@jit
def fill_normal(key: NDArray[Any], stream_id: int, mean: float, scale: float, out: NDArray[Any]) -> None:
    """out = normal numbers by the Box-Muller transform, two draws per element ([n])."""
    stream = stream_of(key, stream_id)
    for i in range(out.size):
        radius = np.sqrt(-2.0 * log(1.0 - uniform(stream, 2 * i)))
        out[i] = mean + scale * radius * cos_of_turns(np.float64(uniform(stream, 2 * i + 1)))


def _dtype(node: Node) -> DType:
    like = 1 if node.op.type in ("RandomNormal", "RandomUniform") else node.input(0).dtype.onnx
    return dtype_numbered(node.attribute("dtype", like))


def _size(node: Node) -> tuple[int, ...]:
    return node.input(0).shape if node.op.inputs else tuple(node.attribute("shape", []))


def _shape(node: Node) -> OutputTypes:
    return [(_dtype(node), _size(node))]


def _numbers(rewrite: Rewrite, node: Node) -> None:
    normal = "Normal" in node.op.type
    names = ("mean", "scale") if normal else ("low", "high")
    values = [float(node.attribute(name, default)) for name, default in zip(names, (0.0, 1.0), strict=True)]
    attributes: dict[str, Any] = {"shape": list(_size(node)), "dtype": _dtype(node).onnx, "values": values}
    rewrite.op(
        "RandomNormals" if normal else "RandomUniforms", key_in(rewrite.graph), into=node.op.outputs[0], **attributes
    )


def _bernoulli(rewrite: Rewrite, node: Node) -> None:
    """1 where a uniform number is below the probability, else 0."""
    x = node.input(0)
    attributes: dict[str, Any] = {"shape": list(x.shape), "dtype": x.dtype.onnx, "values": [0.0, 1.0]}
    below = rewrite.op("Less", rewrite.op("RandomUniforms", key_in(rewrite.graph), **attributes), node.op.inputs[0])
    rewrite.op("Cast", below, into=node.op.outputs[0], to=_dtype(node).onnx)


def _multinomial_shape(node: Node) -> OutputTypes:
    x = node.input(0)
    if x.rank != 2:
        raise node.fail(f"the input must be log probabilities [N, classes], found {x}")
    return [(dtype_numbered(node.attribute("dtype", INT32.onnx)), (x.shape[0], node.attribute("sample_size", 1)))]


def _multinomial(rewrite: Rewrite, node: Node) -> None:
    """Sample classes by inverting the cumulative distribution at uniform numbers."""
    ((_, shape),) = _multinomial_shape(node)
    numbers = rewrite.op(
        "RandomUniforms", key_in(rewrite.graph), shape=list(shape), dtype=FLOAT.onnx, values=[0.0, 1.0]
    )
    drawn = rewrite.op("DrawnClasses", node.op.inputs[0], numbers)
    rewrite.op("Cast", drawn, into=node.op.outputs[0], to=node.attribute("dtype", INT32.onnx))


def _classes(node: Node, logs: Any, numbers: Any) -> Any:
    shares = np.add.accumulate(function("exp")(logs - logs.max(1, keepdims=True)), 1)
    below = numbers[:, :, None] * shares[:, None, -1:] >= shares[:, None, :-1]
    return below.sum(2)


def _drawn_shape(node: Node) -> OutputTypes:
    return [(dtype_numbered(node.attribute("dtype", 1)), tuple(node.attribute("shape", [])))]


def _draw(fill: Any) -> Any:
    def kernel(bound: BoundOp) -> Call:
        a, b = bound.node.attribute("values", [0.0, 1.0])
        return partial(fill, bound.input(0), stream_id_of(bound.node.op), a, b, bound.outputs[0].reshape(-1))

    return with_contiguous_operands(kernel)


def _source(type: str, inputs: int, expand: Any = _numbers) -> OpDef:
    return expanded_op(type, (inputs, inputs), _shape, expand, per_element(20), random=True)


OPS = [
    *(_source(type, 0) for type in ("RandomNormal", "RandomUniform")),
    *(_source(type, 1) for type in ("RandomNormalLike", "RandomUniformLike")),
    _source("Bernoulli", 1, _bernoulli),
    expanded_op("Multinomial", (1, 1), _multinomial_shape, _multinomial, per_element(20), random=True),
    # (logarithms of probabilities, uniform numbers)
    OpDef(
        "DrawnClasses",
        (2, 2),
        lambda node: [(INT32, node.input(1).shape)],
        allocating_kernel(_classes),
        per_element(4),
    ),
    # (key; shape, dtype, values)
    OpDef("RandomNormals", (1, 1), _drawn_shape, _draw(fill_normal), per_element(30), random=True),
    OpDef("RandomUniforms", (1, 1), _drawn_shape, _draw(fill_uniform), per_element(12), random=True),
]
