"""Run one generated kernel; print the number of compiled kernels, and the sum of its results."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops.codegen import llvm_compiler
from ipu_emu.ops.codegen.row_passes import Operand, RowPass, bound_rows


def doubled() -> np.ndarray:
    """Twice 0 to 5, by a kernel."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.zeros_like(x)
    add = RowPass((("load", 0), ("add", 0, 0), ("store", 1, 1)))
    bound_rows([Operand("full"), Operand("full")], [add], [x, y], 2, 3)()
    return y


if __name__ == "__main__":
    compiled = []
    compile_text = llvm_compiler._compile

    def counted(text: str) -> bytes:
        compiled.append(text)
        return compile_text(text)

    vars(llvm_compiler)["_compile"] = counted
    total = doubled().sum()
    print(len(compiled), total)
