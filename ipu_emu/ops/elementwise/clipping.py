"""Clipping: Clip, and Clip to constant bounds as a formula."""

from __future__ import annotations

from functools import partial
from math import inf

import numpy as np

from ipu_emu.graph import Role
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Rewrite, Value, call_chain, per_element
from ipu_emu.ops.core.formulas import Formula, Term
from ipu_emu.ops.core.kernel_helpers import formula_op
from ipu_emu.ops.core.shape_rules import same

# Any bounds


def _clip_shape(node: Node) -> OutputTypes:
    for index in range(1, len(node.inputs)):
        if node.has_input(index) and node.input(index).nelms != 1:
            raise node.fail(f"a bound must be a scalar, found {node.input(index)}")
    return same(node)


def _clip(bound: BoundOp) -> Call:
    x, y = bound.input(0), bound.outputs[0]
    least, most = (bound.inputs[i] if bound.node.has_input(i) else None for i in (1, 2))
    attributes = bound.node.op.attributes
    low = x.dtype.type(attributes["min"]) if "min" in attributes else least
    high = x.dtype.type(attributes["max"]) if "max" in attributes else most
    steps: list[Call] = [partial(np.copyto, y, x)]
    if low is not None:
        steps.append(partial(np.maximum, y, low, out=y))
    if high is not None:
        steps.append(partial(np.minimum, y, high, out=y))
    return call_chain(*steps)


def _clip_grad(d: Adjoint) -> Value:
    """g where the input was not clipped, else 0."""
    zero = d.g.like(0.0)
    return d.x.op("Equal", d.y).op("Where", d.g, zero)


# Constant bounds


def _clip_expand(rewrite: Rewrite, node: Node) -> None:
    """Floating-point numbers between constants as one op that can be fused with its neighbours."""
    if not rewrite.graph.tensor(node.op.inputs[0]).dtype.is_float:
        return
    bounds = {"low": node.op.attributes.get("min", -inf), "high": node.op.attributes.get("max", inf)}
    for name, id in zip(bounds, node.op.inputs[1:], strict=False):
        if id and rewrite.graph.tensor(id).role is not Role.CONSTANT:
            return
        if id:
            bounds[name] = float(rewrite.graph.data[id].reshape(()))
    rewrite.op("ClipBetween", node.op.inputs[0], into=node.op.outputs[0], **bounds)


def _between(x: Term, low: float, high: float) -> Term:
    return x.of("max", low).of("min", high)


def _between_gradient(g: Term, x: Term, low: float, high: float, open: float) -> Term:
    """g where x was not clipped, and in an ``open`` interval is not at a bound, else 0."""
    if open:
        return g.where_positive(x - low).where_positive(-x + high)
    return g.of("where_equal", x, _between(x, low, high))


_BETWEEN = Formula(_between, low=-inf, high=inf)
_BETWEEN_GRADIENT = Formula(_between_gradient, low=-inf, high=inf, open=0.0)


OPS = [
    OpDef("Clip", (1, 3), _clip_shape, _clip, per_element(2), _clip_grad, elementwise=True, expand=_clip_expand),
    formula_op("ClipBetween", 1, _BETWEEN, 2, lambda d: d.g.op("ClipBetweenGrad", d.x, **d.node.op.attributes)),
    formula_op("ClipBetweenGrad", 2, _BETWEEN_GRADIENT, 2, None),
]
