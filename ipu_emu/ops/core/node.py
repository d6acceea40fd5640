"""Node: an op with the tensors it reads, the argument of shape rules and cost rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Tensor
from ipu_emu.graph.dtype import DType

#: The result of a shape rule: element type and shape of each output.
OutputTypes = list[tuple[DType, tuple[int, ...]]]
ShapeRule = Callable[["Node"], OutputTypes]


@dataclass(frozen=True)
class Node:
    """``inputs`` holds None for an absent optional input; ``values`` the data of constant inputs, else None."""

    op: Op
    inputs: tuple[Tensor | None, ...]
    values: tuple[NDArray[Any] | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    def input(self, index: int) -> Tensor:
        """The input at ``index``; raise EmulatorError if it is absent."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise EmulatorError(f"Op {self.op.label} has no input {index}, which it needs")
        return tensor

    def has_input(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def attribute(self, name: str, default: Any) -> Any:
        """The attribute ``name``, or its default."""
        return self.op.attributes.get(name, default)

    def attribute_or_constant(self, name: str, index: int, default: Any = None) -> Any:
        """The attribute ``name``, or the value of input ``index`` in newer opsets, which must be constant."""
        if name in self.op.attributes:
            return self.op.attributes[name]
        if not self.has_input(index):
            return default
        value = self.values[index] if index < len(self.values) else None
        if value is None:
            raise EmulatorError(
                f"Need the value of the {self.described} input '{name}' to determine the output shape, but was "
                f"unable because {self.input(index).id} is not a constant; make it with constant() or an initializer"
            )
        return value.tolist()

    def integer(self, name: str, index: int) -> int:
        """The attribute ``name``, or the constant input ``index`` in newer opsets, as one integer."""
        value = self.attribute_or_constant(name, index)
        return int(value[0] if isinstance(value, list) else value)

    @property
    def described(self) -> str:
        """The op as PopART's texts show it: name, domain, type, version, inputs and outputs."""
        return described(self.op)

    def fail(self, text: str) -> EmulatorError:
        """An error about this op."""
        return EmulatorError(f"Op {self.op.label}: {text}")


@cache
def _first_version(type: str, opset: int) -> int:
    """The version of an op of ai.onnx that an opset has."""
    try:
        return int(onnx.defs.get_schema(type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return opset


def described(op: Op) -> str:
    """Describe an op as PopART does: ``Op(name (ai.onnx.Add:7), inputs=[a, b], outputs=[c])``."""
    version = op.version if op.domain else _first_version(op.type, op.version)
    identifier = f"{op.domain or 'ai.onnx'}.{op.type}:{version}"
    named = f"{op.name} ({identifier})" if op.name else identifier
    return f"Op({named}, inputs=[{', '.join(op.inputs)}], outputs=[{', '.join(op.outputs)}])"


def listed(values: Iterable[object]) -> str:
    """A list as PopART prints it: ``[1 2 3]``."""
    return f"[{' '.join(map(str, values))}]"


def input_node(graph: Graph, op: Op) -> Node:
    """``op`` of ``graph`` with its inputs, without its outputs."""
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return Node(op, inputs, tuple(graph.data.get(id) for id in op.inputs))
