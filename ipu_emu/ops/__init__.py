"""ops: the definition of each operation: shape rule, kernel, gradient, cost; one folder per family."""

from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpCost, OpDef, Value, concatenated
from ipu_emu.ops.insertion import append, append_unchecked, node_of
from ipu_emu.ops.table import TABLE

__all__ = [
    "TABLE", "Adjoint", "BoundOp", "Call", "Node", "OpCost", "OpDef", "Value", "append", "append_unchecked",
    "concatenated", "node_of",
]  # fmt: skip
