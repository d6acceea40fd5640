"""Cell run: the arrays of one direction of a compiled cell, the order of its time steps, and its kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.core import Call, Node
from ipu_emu.ops.core.row_kernels import RowKernel

_Array = NDArray[Any]


class CellRun:
    """Products ``x`` [T, N, gates H] and weights ``r``; ``gates`` names the gates by a letter, in the order of R."""

    def __init__(self, node: Node, x: _Array, r: _Array, gates: str) -> None:
        self.gates, self.x, self.r = gates, x, r
        (self.t, self.n, self.wide), self.hidden = x.shape, r.shape[1]
        order = list(range(self.t))
        self.order = order[::-1] if node.attribute("reverse", 0) else order
        self.has_cell = node.attribute("cell", "") == "LSTM"

    def parts(self, prefix: str, array: _Array) -> dict[str, tuple[str, _Array]]:
        """The gates of ``array`` [rows, gates H] as operands."""
        size = self.hidden
        return {
            prefix + gate: full(array[:, index * size : (index + 1) * size]) for index, gate in enumerate(self.gates)
        }

    def kernel(self, text: str, rows: int, **operands: tuple[str, _Array]) -> Call:
        """The kernel ``text`` on those of the operands that it names."""
        words = set(text.replace(";", " ").split())
        used = {name: operand for name, operand in operands.items() if name in words}
        return RowKernel(rows, self.hidden, **used).add(text).bound()


def full(array: _Array) -> tuple[str, _Array]:
    """An operand that has a number for every result."""
    return "full", array


def states_before(run: CellRun, first: _Array, y: _Array, before: _Array) -> list[Call]:
    """Copy the state that each step starts from."""
    start, *others = run.order
    steps: list[Call] = [partial(np.copyto, before[start], first)]
    if others and start == 0:
        steps.append(partial(np.copyto, before[1:], y[:-1]))
    elif others:
        steps.append(partial(np.copyto, before[:-1], y[1:]))
    return steps
