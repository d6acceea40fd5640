"""Powers: Pow, and powers with a small constant exponent as products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Role
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Rewrite, Value, per_element
from ipu_emu.ops.core.array_functions import function
from ipu_emu.ops.core.formulas import Formula, Term
from ipu_emu.ops.core.kernel_helpers import formula_op
from ipu_emu.ops.core.shape_rules import aligned_shape

# Any exponent


def _power_shape(node: Node) -> OutputTypes:
    """The type of the base (the exponent may have another) and the broadcast shape."""
    a, b = node.input(0), node.input(1)
    try:
        return [(a.dtype, np.broadcast_shapes(a.shape, aligned_shape(node)))]
    except ValueError:
        raise node.fail(f"shapes of {a} and {b} do not broadcast") from None


def _power(bound: BoundOp) -> Call:
    base, exponent, out = bound.input(0), bound.input(1).reshape(aligned_shape(bound.node)), bound.outputs[0]
    if out.dtype.kind != "f" and exponent.dtype.kind != "f":
        return lambda: np.copyto(out, _integer_power(base, exponent), casting="unsafe")
    return function("pow").bound(base, exponent, out=out)


def _integer_power(base: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    """The lowest bits of the exact power; with a negative exponent it is 0, unless the base is 1 or -1."""
    wide, below = base.astype(np.int64), exponent < 0
    power = np.power(wide, np.where(below, exponent % 2, exponent).astype(np.int64))
    return np.where(below & (np.abs(wide) != 1), 0, power)


def _power_grad(d: Adjoint) -> list[Value | None]:
    """y = x^e: the factors of the gradient are e x^(e - 1) for x and y log x for e.

    The first is 0 where e is 0, the second where x is 0 and e is not negative.
    """
    x, e = d.x, d.input(1)
    shape = e.tensor.shape
    if e.tensor.dtype is not x.tensor.dtype:
        e = e.op("Cast", to=x.tensor.dtype.onnx)
    e = e.shaped(aligned_shape(d.node))
    slope = e.op("Equal", e.like(0.0)).op("Where", d.g.like(0.0), d.g * e * x.op("Pow", e - 1.0))
    dx = slope.summed_to(d.shape)
    if not d.input(1).tensor.dtype.is_float:
        return [dx, None]
    constant = x.op("Equal", x.like(0.0)).op("And", e.op("Less", e.like(0.0)).op("Not"))
    de = constant.op("Where", d.g.like(0.0), d.g * d.y * x.op("Log"))
    return [dx, de.summed_to(aligned_shape(d.node)).shaped(shape)]


# Small exponents


#: The exponents that are computed by products.
_PRODUCTS = range(2, 9)


def _power_expand(rewrite: Rewrite, node: Node) -> None:
    """A power with a small constant exponent as one op of products; 100 times as fast as the general one."""
    base, exponent = (rewrite.graph.tensor(id) for id in node.op.inputs)
    if exponent.role is not Role.CONSTANT or exponent.nelms != 1 or not base.dtype.is_float:
        return
    value = float(rewrite.graph.data[exponent.id].reshape(()))
    if value not in _PRODUCTS or rewrite.graph.tensor(node.op.outputs[0]).shape != base.shape:
        return
    rewrite.op("PowerByProducts", base.id, into=node.op.outputs[0], exponent=int(value))


def _by_products(x: Term, exponent: float) -> Term:
    """x^n from x, x^2, x^4, ...: at most n - 1 roundings in the relative error."""
    result, square, left = None, x, int(exponent)
    while left:
        if left % 2:
            result = square if result is None else result * square
        left //= 2
        square = square * square if left else square
    assert result is not None
    return result


_POWER = Formula(_by_products, exponent=2.0)


def _by_products_grad(d: Adjoint) -> Value:
    exponent = d.attribute("exponent", 2)
    lower = d.x if exponent == 2 else d.x.op("PowerByProducts", exponent=exponent - 1)
    return d.g * lower.scaled(float(exponent))


OPS = [
    OpDef("Pow", (2, 2), _power_shape, _power, per_element(20), _power_grad, elementwise=True, expand=_power_expand),
    formula_op("PowerByProducts", 1, _POWER, 2, _by_products_grad),
]
