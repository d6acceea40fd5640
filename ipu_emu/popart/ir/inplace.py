"""In-place ops: the ops that write their result over an input, as PopART's InPlace pattern chooses them.

A view (Reshape, Slice, ...) shares the memory of its input. Any other op may overwrite an input that no later op
reads directly or through a view, unless that is a weight, a constant or an anchor.
"""

from __future__ import annotations

from ipu_emu.graph import Role, StepPhase
from ipu_emu.popart.ir.ir_graph import IrGraph, IrOp

_VIEWS = frozenset(
    {"Concat", "Expand", "Flatten", "Identity", "Reshape", "Reverse", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_UNARY = frozenset({
    "Asin", "Atan", "Ceil", "Clip", "CumSum", "Detach", "Elu", "Erf", "Exp", "Expm1", "Floor", "Gelu", "GeluErf",
    "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Log1p", "LogSoftmax", "NearbyInt", "Round", "Relu", "Scale",
    "Selu", "Shrink", "Sigmoid", "Sign", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
_BINARY = frozenset({"Add", "Mul", "Pow", "Atan2"})
#: Ops that may overwrite their first input only.
_FIRST = _UNARY | {"AddBias", "DynamicAdd", "DynamicUpdate", "DynamicZero", "ScaledAdd"}
_FIXED = (Role.WEIGHT, Role.STATE, Role.CONSTANT, Role.SCALAR)


def work_in_place(graph: IrGraph) -> None:
    """Rename the ops that overwrite or share the memory of an input."""
    _Choice(graph).run()


class _Choice:
    def __init__(self, graph: IrGraph) -> None:
        self.graph, self.readers = graph, graph.readers()
        #: The tensors that share the memory of each tensor.
        self.shared: dict[str, set[str]] = {}

    def run(self) -> None:
        for index, op in enumerate(self.graph.ops):
            if op.phase is StepPhase.UPDATE or not op.outputs:
                continue
            if op.type in _VIEWS:
                self.view(op)
            elif op.type in _FIRST and self.may_overwrite(op.inputs[0], op, index):
                self.overwrite(op, 0, "Inplace")
            elif op.type in _BINARY and len(op.inputs) == 2:
                self.binary(op, index)

    def view(self, op: IrOp) -> None:
        sources = [id for id in op.inputs if id]
        if any(self.graph.tensors[id].role in _FIXED for id in sources):
            return
        if op.outputs[0] in self.graph.anchors and op.type == "Identity":
            return
        op.type += "Inplace"
        group = {op.outputs[0]}.union(*(self.memory(id) for id in sources))
        self.shared |= dict.fromkeys(group, group)

    def binary(self, op: IrOp, index: int) -> None:
        for side, suffix in enumerate(("LhsInplace", "RhsInplace")):
            if self.graph.shape(op.inputs[side]) != self.graph.shape(op.outputs[0]):
                continue
            if self.may_overwrite(op.inputs[side], op, index):
                self.overwrite(op, side, suffix if op.type in ("Add", "Mul") else "Inplace")
                return
            if op.type not in ("Add", "Mul"):
                return

    def memory(self, id: str) -> set[str]:
        return self.shared.get(id, {id})

    def may_overwrite(self, id: str, op: IrOp, index: int) -> bool:
        for other in self.memory(id):
            if other in self.graph.anchors or self.graph.tensors[other].role in _FIXED:
                return False
            if any(reader > index for reader in self.readers.get(other, ())):
                return False
        return op.inputs.count(id) == 1

    def overwrite(self, op: IrOp, side: int, suffix: str) -> None:
        group = self.memory(op.inputs[side]) | {op.outputs[0]}
        self.shared |= dict.fromkeys(group, group)
        op.type += suffix
