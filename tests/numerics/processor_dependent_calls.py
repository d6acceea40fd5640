"""Processor-dependent calls: uses of BLAS, libm and numpy's SIMD dispatch, and sums in numpy's order.

A use is named as the source spells it: ``np.add.reduce``, ``losses.sum``, ``x ** y``; matrix products are ``@``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["calls_in"]

_WORDS = re.compile(r"\w+")
_OF_NUMPY = frozenset(
    _WORDS.findall("""
    matmul matvec vecmat vecdot dot einsum tensordot inner outer vdot linalg convolve correlate kron cross fft
    polynomial random interp
    exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 power float_power cbrt hypot sin cos tan arcsin arccos
    arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh pow asin acos atan atan2 asinh acosh atanh sinc i0
    sum mean std var prod cumsum cumprod nansum nanmean nanstd nanvar nanprod nancumsum average trace bincount
    histogram trapezoid gradient cov corrcoef""")
)
_OF_MATH = frozenset(
    _WORDS.findall("""
    exp exp2 expm1 log log2 log10 log1p pow cbrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf
    erfc gamma lgamma hypot dist sumprod""")
)
_OF_UFUNCS = {"reduce", "reduceat", "accumulate", "at", "outer"}
#: ufuncs whose reductions are exact in any order.
_EXACT = {"maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor"}
_METHODS = {"sum", "mean", "std", "var", "prod", "cumsum", "cumprod", "dot", "trace"}
#: Of generators, which make other than uniform numbers by libm.
_OF_GENERATORS = {"normal", "standard_normal", "lognormal", "exponential", "standard_exponential", "standard_gamma"}
#: LLVM's intrinsics that are instructions of every supported processor; others call libm.
_INTRINSICS = {"fma", "fshl", "floor", "ceil", "rint", "nearbyint", "trunc", "fabs", "copysign", "sqrt"}
_MODULES = {"numpy": "np", "math": "math"}


def calls_in(path: Path) -> Iterator[str]:
    """The uses in a file, in the order of its lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and _is_listed(node):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            names = _OF_NUMPY if node.module == "numpy" else _OF_MATH
            yield from (f"{_MODULES[node.module]}.{name.name}" for name in node.names if name.name in names)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "@"
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Pow) and not _is_exact(node):
            yield ast.unparse(node)


def _is_listed(node: ast.Attribute) -> bool:
    """np.exp, math.exp, np.add.reduce or random.normal."""
    owner = ast.unparse(node.value)
    if owner in ("random", "self._random"):
        return node.attr in _OF_GENERATORS
    if owner.startswith("np.") and node.attr in _OF_UFUNCS:
        return owner.removeprefix("np.") not in _EXACT
    return (owner == "np" and node.attr in _OF_NUMPY) or (owner == "math" and node.attr in _OF_MATH)


def _of_call(node: ast.Call) -> Iterator[str]:
    """losses.sum(), or an intrinsic by its name."""
    if not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr in _METHODS and ast.unparse(node.func.value) not in ("np", "math"):
        yield ast.unparse(node.func)
    if node.func.attr == "intrinsic" and isinstance(node.args[0], ast.Constant):
        yield from [f"llvm.{node.args[0].value}"] * (node.args[0].value not in _INTRINSICS)


def _is_exact(power: ast.BinOp | ast.AugAssign) -> bool:
    """Whether a power is one of 2, or of integer constants."""
    if isinstance(power, ast.AugAssign):
        return False
    is_of_two = isinstance(power.left, ast.Constant) and power.left.value == 2
    sides = (power.left, power.right)
    return is_of_two or all(isinstance(side, ast.Constant) and isinstance(side.value, int) for side in sides)
