"""Mathematical functions: element-wise functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, GradRule, Kernel, Node, OpDef, OutputTypes, Value, per_element
from ipu_emu.ops.core.formulas import Formula, named
from ipu_emu.ops.core.kernel_helpers import allocating_kernel, formula_op, ufunc
from ipu_emu.ops.core.shape_rules import same


def _function(
    type: str, kernel: Kernel, grad: GradRule | None, flops: int, domain: str = "", formula: Formula | None = None
) -> OpDef:
    cost = per_element(flops)
    return OpDef(type, (1, 1), same, kernel, cost, grad, elementwise=True, domain=domain, formula=formula)


def _formula(type: str, name: str, grad: GradRule | None, flops: int, domain: str = "") -> OpDef:
    """A function that kernels compute themselves; see ``ops.codegen.functions`` for its accuracy."""
    return formula_op(type, 1, named(name), flops, grad, domain)


def _step(type: str, function: Callable[..., Any], domain: str = "") -> OpDef:
    """A piecewise constant function; its gradient is 0."""
    return _function(type, ufunc(function), lambda d: d.x.constantly(0), 1, domain)


def _test(type: str, kernel: Kernel) -> OpDef:
    def shape(node: Node) -> OutputTypes:
        return [(BOOL, node.input(0).shape)]

    return OpDef(type, (1, 1), shape, kernel, per_element(1), elementwise=True)


def _bell(x: Value) -> Value:
    """exp(-x * x)"""
    return (-(x * x)).op("Exp")


def _over_root(d: Adjoint, inside: Value) -> Value:
    return d.g / inside.op("Sqrt")


def _is_inf(node: Node, x: NDArray[Any]) -> NDArray[Any]:
    up, down = node.attribute("detect_positive", 1), node.attribute("detect_negative", 1)
    return (np.isposinf(x) & bool(up)) | (np.isneginf(x) & bool(down))


OPS = [
    _formula("Exp", "exp", lambda d: d.g * d.y, 8),
    _formula("Log", "log", lambda d: d.g / d.x, 8),
    _function("Sqrt", ufunc(np.sqrt), lambda d: d.g / (d.y * 2.0), 4, formula=named("sqrt")),
    _formula("Tanh", "tanh", lambda d: d.g * (1 - d.y * d.y), 10),
    _function("Abs", ufunc(np.absolute), lambda d: d.g * d.x.op("Sign"), 1, formula=named("abs")),
    _function("Reciprocal", ufunc(np.reciprocal), lambda d: -(d.g * d.y * d.y), 1),
    _formula("Sin", "sin", lambda d: d.g * d.x.op("Cos"), 10),
    _formula("Cos", "cos", lambda d: -(d.g * d.x.op("Sin")), 10),
    _formula("Tan", "tan", lambda d: d.g * (d.y * d.y + 1.0), 10),
    _formula("Asin", "asin", lambda d: _over_root(d, 1.0 - d.x * d.x), 10),
    _formula("Acos", "acos", lambda d: -_over_root(d, 1.0 - d.x * d.x), 10),
    _formula("Atan", "atan", lambda d: d.g / (d.x * d.x + 1.0), 10),
    _formula("Sinh", "sinh", lambda d: d.g * d.x.op("Cosh"), 10),
    _formula("Cosh", "cosh", lambda d: d.g * d.x.op("Sinh"), 10),
    _formula("Asinh", "asinh", lambda d: _over_root(d, d.x * d.x + 1.0), 10),
    _formula("Acosh", "acosh", lambda d: _over_root(d, d.x * d.x - 1.0), 10),
    _formula("Atanh", "atanh", lambda d: d.g / (1.0 - d.x * d.x), 10),
    _formula("Erf", "erf", lambda d: (d.g * _bell(d.x)).scaled(2 / sqrt(pi)), 15),
    _formula("Erfc", "erfc", lambda d: (d.g * _bell(d.x)).scaled(-2 / sqrt(pi)), 15),
    _formula("Log2", "log2", lambda d: (d.g / d.x).scaled(1.4426950408889634), 8),
    _formula("Log10", "log10", lambda d: (d.g / d.x).scaled(0.4342944819032518), 8),
    _formula("Log1p", "log1p", lambda d: d.g / (d.x + 1.0), 8, GRAPHCORE),
    _formula("Expm1", "expm1", lambda d: d.g * (d.y + 1.0), 8, GRAPHCORE),
    _step("Sign", np.sign),
    _step("Floor", np.floor),
    _step("Ceil", np.ceil),
    _step("Round", np.rint),
    _step("Round", np.rint, GRAPHCORE),
    _step("NearbyInt", np.rint, GRAPHCORE),
    _test("IsNaN", ufunc(np.isnan)),
    _test("IsInf", allocating_kernel(_is_inf)),
]
