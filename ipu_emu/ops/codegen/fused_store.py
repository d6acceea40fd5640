"""Fused store: an element-wise function that a product applies to its results before it stores them.

    y = a b        z = relu(y + x)        y stays in registers; x and z have the shape and storage order of y

The function is a body of instructions as in ``row_passes``, so that its results have the same bits as those of a
separate pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.functions.float32_math import FUNCTIONS
from ipu_emu.ops.codegen.functions.lane_values import number
from ipu_emu.ops.codegen.llvm_builder import Kernel

#: The instructions, and the kind of each operand that they load: RESULT, or the kind of an extra one.
StoreForm = tuple[tuple[tuple[Any, ...], ...], tuple[str, ...]]

#: Names of the arguments of a product for the extra operands.
EXTRAS = ("extra_0", "extra_1")

#: Functions of few instructions. Others need registers that hold results: with GELU in its products ConvNeXt takes
#: 32.3 ms instead of 30.6.
SHORT = {"load", "store", "number", "add", "sub", "mul", "div", "neg", "max", "min", "relu", "abs"}

#: The kind of the operand that is the result of the product.
RESULT = "result"


@dataclass(frozen=True)
class FusedStore:
    """``body`` on operands of ``kinds``: the result; "full" ones, stored like it; "column" ones, a number per column.

    ``arrays`` has those that are not the result, in their order. The operand after them is the ``output``.
    """

    body: tuple[tuple[Any, ...], ...]
    kinds: tuple[str, ...]
    arrays: tuple[NDArray[np.float32], ...]
    output: NDArray[np.float32]

    @property
    def form(self) -> StoreForm:
        return self.body, self.kinds

    def fits(self, kinds: Sequence[str]) -> bool:
        """Whether a product can take all operands, which must be of these kinds, and the function is a short one."""
        short = {instruction[0] for instruction in self.body} <= SHORT
        return short and len(self.arrays) <= len(EXTRAS) and set(self.kinds) <= {RESULT, *kinds}

    def arguments(self) -> dict[str, int]:
        """The arguments of a product: the distance from the output to full operands, the addresses of others."""
        extra, start = [kind for kind in self.kinds if kind != RESULT], self.output.ctypes.data
        addresses = {
            name: array.ctypes.data - (start if kind == "full" else 0)
            for name, kind, array in zip(EXTRAS, extra, self.arrays, strict=False)
        }
        return {name: addresses.get(name, 0) for name in EXTRAS}


def stored_value(kernel: Kernel, form: StoreForm, result: Any, load: Callable[[str, str], Any]) -> Any:
    """The value to store for a ``result``; ``load(name, kind)`` loads from an extra operand."""
    body, kinds = form
    extra = iter(EXTRAS)
    names = [None if kind == RESULT else next(extra) for kind in kinds]
    values: list[Any] = []
    for kind, *rest in body:
        if kind == "load":
            name = names[rest[0]]
            values.append(result if name is None else load(name, kinds[rest[0]]))
        elif kind == "store":
            return values[rest[1]]
        elif kind == "number":
            values.append(number(rest[0], result))
        else:
            values.append(FUNCTIONS[kind](kernel, *(values[value] for value in rest)))
    raise AssertionError(f"no store in {body}")
