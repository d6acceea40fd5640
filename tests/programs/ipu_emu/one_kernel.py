"""Run one generated kernel; print the number of compiled kernels, and the sum of its results."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ipu_emu.ops.codegen.row_passes import Operand, RowPass, bound_rows


def combined(operator: str) -> np.ndarray:
    """0 to 5, each added to or multiplied by itself, by a kernel."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.zeros_like(x)
    add = RowPass((("load", 0), (operator, 0, 0), ("store", 1, 1)))
    bound_rows([Operand("full"), Operand("full")], [add], [x, y], 2, 3)()
    return y


if __name__ == "__main__":
    compiled = []
    parse = llvm.parse_assembly

    def counted(text: str) -> Any:
        compiled.append(text)
        return parse(text)

    vars(llvm)["parse_assembly"] = counted
    total = combined("add").sum()
    print(len(compiled), total)
