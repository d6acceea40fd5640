"""Row kernels: softmax and normalisation as a few passes over the rows of a matrix (see ``ops.codegen.row_passes``).

Arrays are stored row by row, in float32 or half; so are the statistics of each row (mean, inverse deviation). Each
function returns the call for its arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.row_passes import Instruction, Operand, RowPass, bound_rows
from ipu_emu.ops.core.array_functions import function
from ipu_emu.ops.core.op_definition import Call

_Array = NDArray[Any]


class RowKernel:
    """Builds a kernel from named operands and passes over them."""

    def __init__(self, rows: int, columns: int, **operands: tuple[str, _Array]) -> None:
        self.rows, self.columns = rows, columns
        self.places = {name: index for index, name in enumerate(operands)}
        self.operands = [Operand.of(kind, array) for kind, array in operands.values()]
        self.arrays = [array for _, array in operands.values()]
        self.passes: list[RowPass] = []

    def scalars(self, **arrays: _Array) -> RowKernel:
        """Append scalar operands."""
        for name, array in arrays.items():
            self.places[name] = len(self.operands)
            self.operands.append(Operand.of("scalar", array))
            self.arrays.append(array)
        return self

    def add(self, body: str = "", then: str = "") -> RowKernel:
        """Append a pass; see ``_parse``."""
        self.passes.append(RowPass(self._parse(body), self._parse(then)))
        return self

    def _parse(self, text: str) -> tuple[Instruction, ...]:
        """``v = function a b; store operand v; ...``: a word names a value, an operand, a number or a row scalar."""
        values: dict[str, int] = {}
        instructions: list[Instruction] = []

        def value(word: str) -> int:
            if word not in values:
                if word in self.places:
                    instructions.append(("load", self.places[word]))
                elif word[0].isdigit():
                    instructions.append(("number", float(word)))
                else:
                    instructions.append(("let", word))
                values[word] = len(instructions) - 1
            return values[word]

        for line in filter(None, (part.split() for part in text.split(";"))):
            if line[1] == "=":
                arguments = [value(word) for word in line[3:]]
                instructions.append((line[2], *arguments))
                values[line[0]] = len(instructions) - 1
            else:
                argument = value(line[2])
                target = self.places[line[1]] if line[0] in ("store", "gather", "put") else line[1]
                instructions.append((line[0], target, argument))
        return tuple(instructions)

    def bound(self, matrices: int = 1) -> Call:
        step: Call = bound_rows(self.operands, self.passes, self.arrays, self.rows, self.columns, matrices)
        return step


def _number(value: float) -> _Array:
    return np.array([value], np.float32)


def softmax(x: _Array, y: _Array, rows: int, columns: int) -> Call:
    kernel = RowKernel(rows, columns, x=("full", x), y=("full", y)).add("largest m x")
    if y.dtype == np.float16:  # y rounds to half, so compute the exponentials again instead of reading them from y
        kernel.add("d = sub x m; e = exp_falling d; sum s e", "r = div 1 s; define r r")
        return kernel.add("d = sub x m; e = exp_falling d; p = mul e r; store y p").bound()
    kernel.add("d = sub x m; e = exp_falling d; store y e; sum s e", "r = div 1 s; define r r")
    return kernel.add("p = mul y r; store y p").bound()


def softmax_grad(g: _Array, y: _Array, dx: _Array, rows: int, columns: int) -> Call:
    """dx = y (g - sum(g y))"""
    kernel = RowKernel(rows, columns, g=("full", g), y=("full", y), dx=("full", dx))
    kernel.add("p = mul g y; sum s p")
    return kernel.add("d = sub g s; p = mul d y; store dx p").bound()


def log_softmax(x: _Array, y: _Array, largest: _Array, total: _Array, rows: int, columns: int) -> list[Call]:
    """y = (x - m) - log(sum(exp(x - m))), with the largest element m of each row; ``largest``, ``total``: [rows]."""
    sums = RowKernel(rows, columns, x=("full", x), largest=("row", largest), total=("row", total)).add("largest m x")
    sums.add("d = sub x m; e = exp_falling d; sum s e", "put largest m; put total s")
    logs = RowKernel(rows, columns, x=("full", x), y=("full", y), largest=("row", largest), total=("row", total))
    logs.add("d = sub x largest; p = sub d total; store y p")
    return [sums.bound(), function("log").bound(total, out=total), logs.bound()]


def log_softmax_grad(g: _Array, y: _Array, dx: _Array, rows: int, columns: int) -> Call:
    """dx = g - exp(y) sum(g)"""
    kernel = RowKernel(rows, columns, g=("full", g), y=("full", y), dx=("full", dx)).add("sum s g")
    return kernel.add("e = exp_falling y; p = mul e s; d = sub g p; store dx d").bound()


def _norm_kernel(per: str, rows: int, columns: int, arrays: dict[str, _Array]) -> RowKernel:
    """A kernel of a normalisation: the kind of each operand follows from its name, ``per`` for scale and bias."""
    kinds = dict.fromkeys(("x", "y", "g", "dx"), "full") | dict.fromkeys(("scale", "bias", "dscale", "dbias"), per)
    return RowKernel(rows, columns, **{name: (kinds.get(name, "row"), array) for name, array in arrays.items()})


def _share(columns: int) -> _Array:
    """The factor that makes the mean of a row of its sum."""
    return _number(1 / max(columns, 1))


def norm(per: str, rows: int, columns: int, epsilon: float, **arrays: _Array) -> Call:
    """y = (x - mean) inverse scale + bias, inverse = 1 / sqrt(variance + epsilon), with the statistics of each row.

    Operands: x, scale, bias, y, mean, variance, inverse. Scale and bias have one number ``per`` row or column; mean,
    variance and inverse have one per row.
    """
    kernel = _norm_kernel(per, rows, columns, arrays).scalars(share=_share(columns), epsilon=_number(epsilon))
    kernel.add("sum s x", "m = mul s share; define m m; put mean m")
    kernel.add(
        "d = sub x m; q = mul d d; sum s q",
        "v = mul s share; put variance v; w = add v epsilon; o = sqrt w; i = div 1 o; define i i; put inverse i",
    )
    if per == "row":
        kernel.add(then="f = mul i scale; define f f")
        return kernel.add("d = sub x m; h = mul d f; p = add h bias; store y p").bound()
    return kernel.add("d = sub x m; h = mul d i; k = mul h scale; p = add k bias; store y p").bound()


def norm_grad(per: str, rows: int, columns: int, **arrays: _Array) -> Call:
    """The adjoint of ``norm``; with ``per`` column it adds to ``dscale`` and ``dbias``, which must be float32.

    Operands: g, x, scale, mean, inverse, dx, dscale, dbias.
    """
    kernel = _norm_kernel(per, rows, columns, arrays).scalars(share=_share(columns))
    if per == "row":
        kernel.add(
            "d = sub x mean; h = mul d inverse; p = mul g h; sum a g; sum b p",
            "put dbias a; put dscale b; f = mul scale inverse; define f f; "
            "j = mul a share; define j j; k = mul b share; define k k",
        )
        return kernel.add(
            "d = sub x mean; h = mul d inverse; q = mul h k; r = sub g j; s = sub r q; t = mul s f; store dx t"
        ).bound()
    kernel.add(
        "d = sub x mean; h = mul d inverse; p = mul g h; gather dscale p; gather dbias g; "
        "u = mul g scale; w = mul u h; sum a u; sum b w",
        "j = mul a share; define j j; k = mul b share; define k k",
    )
    return kernel.add(
        "d = sub x mean; h = mul d inverse; u = mul g scale; q = mul h k; r = sub u j; s = sub r q; "
        "t = mul s inverse; store dx t"
    ).bound()


def row_moments(rows: int, columns: int, **arrays: _Array) -> Call:
    """The ``mean`` of each row of x, and that of the ``square``s: the variance and the square of the mean."""
    kernel = _norm_kernel("row", rows, columns, arrays).scalars(share=_share(columns))
    kernel.add("sum s x", "m = mul s share; define m m; put mean m")
    kernel.add("d = sub x m; q = mul d d; sum s q", "v = mul s share; p = mul m m; w = add v p; put square w")
    return kernel.bound()


def shared_norm(rows: int, columns: int, epsilon: float, **arrays: _Array) -> Call:
    """``norm`` per row by means that several matrices share: ``first`` of x, ``second`` of x^2."""
    kernel = _norm_kernel("row", rows, columns, arrays).scalars(epsilon=_number(epsilon))
    kernel.add(
        then="p = mul first first; r = sub second p; v = max r 0; w = add v epsilon; o = sqrt w; i = div 1 o; "
        "put mean first; put variance v; put inverse i; f = mul i scale; define f f",
    )
    return kernel.add("d = sub x first; h = mul d f; p = add h bias; store y p").bound()


def norm_slopes(rows: int, columns: int, **arrays: _Array) -> Call:
    """The means of g and of g (x - mean) inverse over each row, and their sums: ``dbias`` and ``dscale``.

    Operands: g, x, mean, inverse, the ``first`` and ``second`` means, dscale, dbias.
    """
    kernel = _norm_kernel("row", rows, columns, arrays).scalars(share=_share(columns))
    return kernel.add(
        "d = sub x mean; h = mul d inverse; p = mul g h; sum a g; sum b p",
        "put dbias a; put dscale b; j = mul a share; put first j; k = mul b share; put second k",
    ).bound()


def shared_norm_grad(rows: int, columns: int, **arrays: _Array) -> Call:
    """The gradient dx of x by ``shared_norm``, from g and the shared means, ``first`` and ``second``."""
    kernel = _norm_kernel("row", rows, columns, arrays).add(then="f = mul scale inverse; define f f")
    return kernel.add(
        "d = sub x mean; h = mul d inverse; q = mul h second; r = sub g first; s = sub r q; t = mul s f; store dx t"
    ).bound()


def column_sums(x: _Array, y: _Array, rows: int, columns: int, matrices: int = 1) -> Call:
    """Add the sum of each column of each matrix to ``y``, in its type."""
    return RowKernel(rows, columns, x=("full", x), y=("column", y)).add("gather y x").bound(matrices)


def row_sums(x: _Array, y: _Array, rows: int, columns: int, matrices: int = 1) -> Call:
    """Set ``y`` to the sum of each row of each matrix."""
    return RowKernel(rows, columns, x=("full", x), y=("row", y)).add("sum s x", "put y s").bound(matrices)
