"""Dropout: zeroes elements at random and scales the others by 1 / (1 - ratio); identity outside of training.

The op of a model becomes ``DropoutWithKey`` in a training graph (compiler/rewriting/dropout_keys.py). Its gradient
draws the same numbers again, so that no mask is stored.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, Node, OutputTypes, Value, call_chain, copy_cost, per_element
from ipu_emu.ops.core.kernel_helpers import flat
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef
from ipu_emu.ops.core.shape_rules import broadcasts_to, same
from ipu_emu.ops.random.counter_rng import STREAM_ID, stream_of, uniform


@jit
def dropout(x: NDArray[Any], key: NDArray[Any], stream_id: int, ratio: float, out: NDArray[Any]) -> None:
    """out = x / (1 - ratio) where the element's random number is at least ``ratio``, else 0 (all [n])."""
    stream, least, scale = stream_of(key, stream_id), np.float32(ratio), np.float32(1 / (1 - ratio))
    for i in range(x.size):
        out[i] = x[i] * scale if uniform(stream, i) >= least else np.float32(0)


@jit
def dropout_mask(key: NDArray[Any], stream_id: int, ratio: float, out: NDArray[Any]) -> None:
    """out = True where ``dropout`` keeps the element ([n])."""
    stream, least = stream_of(key, stream_id), np.float32(ratio)
    for i in range(out.size):
        out[i] = uniform(stream, i) >= least


def _checked_ratio(node: Node) -> float:
    ratio = float(node.attribute_or_constant("ratio", 1, 0.5))
    if not 0 <= ratio < 1:
        raise EmulatorError(
            f"{node.op.label} ratio value {ratio:g} is not valid. Please use a value in the interval [0,1)"
        )
    return ratio


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    _checked_ratio(node)
    return [(x.dtype, x.shape), (BOOL if node.op.version >= 10 else x.dtype, x.shape)]


def _identity(bound: BoundOp) -> Call:
    masks = [partial(np.copyto, mask, np.array(1), casting="unsafe") for mask in bound.outputs[1:]]
    return call_chain(partial(np.copyto, bound.outputs[0], bound.input(0)), *masks)


def _dropout(bound: BoundOp) -> Call:
    x, out, *masks = flat(bound.input(0), *bound.outputs)
    stream_id, ratio = int(bound.node.attribute(STREAM_ID, 0)), float(bound.node.attribute("ratio", 0.5))
    key = bound.input(1)
    return call_chain(
        partial(dropout, x, key, stream_id, ratio, out),
        *(partial(dropout_mask, key, stream_id, ratio, mask) for mask in masks),
    )


def _grad(d: Adjoint) -> list[Value | None]:
    values: dict[str, Any] = {"ratio": d.attribute("ratio", 0.5), STREAM_ID: d.attribute(STREAM_ID, 0)}
    return [d.g.op("DropoutGrad", d.inputs[1], **values), None]


def _shaped(node: Node) -> OutputTypes:
    """The type and shape of x; ``shape`` broadcasts to it, with one random number per element of ``shape``."""
    x, shape = node.input(0), tuple(node.attribute("shape", []))
    _checked_ratio(node)
    if not broadcasts_to(shape, x.shape):
        raise EmulatorError(
            "ShapedDropout: incompatible input tensor and dropout shape. The shape "
            f"{list(shape)} does not broadcast to {x}"
        )
    return [(x.dtype, x.shape)]


#: Inputs from opset 12 on.
_GIVEN = {1: "ratio", 2: "training_mode"}

OPS = [
    OpDef("Dropout", (1, 3), _shape, _identity, copy_cost, lambda d: d.g, elementwise=True, constant_inputs=_GIVEN),
    OpDef("ShapedDropout", (1, 1), _shaped, _identity, copy_cost, lambda d: d.g, elementwise=True, domain=GRAPHCORE),
    # (x, key), (g, key)
    OpDef("DropoutWithKey", (2, 2), _shape, _dropout, per_element(6), _grad, elementwise=True, random=True),
    OpDef(
        "DropoutGrad",
        (2, 2),
        same,
        _dropout,
        per_element(6),
        elementwise=True,
        random=True,
    ),
]
