"""NodeAttributes: reads and changes the attributes of the nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op

_T = TypeVar("_T", int, float, str)
_Kind = type[_T]

#: The name of an attribute's type in messages, by the type of its value.
_NAMES: dict[type, str] = {int: "an integer", float: "a float", str: "a string"}


class NodeAttributes:
    """Attributes of the nodes of one graph; a node is named by all of its outputs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of(self, outputs: set[str]) -> Mapping[str, Any]:
        """Return the attributes of a node by name."""
        return self._node(outputs).attributes

    def type(self, outputs: set[str]) -> str:
        """Return the type of a node."""
        return self._node(outputs).type

    def scalar(self, name: str, outputs: set[str], kind: _Kind[_T]) -> _T:
        """Return an attribute that is one value; raise EmulatorError if it does not exist or is of another kind."""
        value = self._existing(name, outputs)
        if not isinstance(value, kind):
            raise EmulatorError(f"Attribute {name} is not {_NAMES[kind]}.")
        return value

    def vector(self, name: str, outputs: set[str], kind: _Kind[_T]) -> list[_T]:
        """Return an attribute that is a list; raise EmulatorError if it does not exist or is of another kind."""
        value = self._existing(name, outputs)
        if not (isinstance(value, list) and all(isinstance(item, kind) for item in value)):
            raise EmulatorError(f"Attribute {name} is not {_NAMES[kind]} vector.")
        return value

    def _existing(self, name: str, outputs: set[str]) -> Any:
        attributes = self.of(outputs)
        if name not in attributes:
            raise EmulatorError(f"Node does not have an attribute {name}.")
        return attributes[name]

    def add(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute that the node does not have yet."""
        if name in self.of(outputs):
            raise EmulatorError(f"Node already has attribute {name}.")
        self.assign(name, value, outputs)

    def assign(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute, or change its value."""
        op = self._node(outputs)
        self._replace(op, {**op.attributes, name: attribute_value(value)})

    def remove(self, name: str, outputs: set[str]) -> None:
        op = self._node(outputs)
        if name not in op.attributes:
            raise EmulatorError(f"Cannot remove attribute {name} as it does not exist.")
        self._replace(op, {key: value for key, value in op.attributes.items() if key != name})

    def _node(self, outputs: set[str]) -> Op:
        for op in self._graph.ops:
            if set(op.outputs) == set(outputs):
                return op
        raise EmulatorError(
            f"Could not find a node with outputs {', '.join(sorted(outputs))}. Must specify all outputs of a node"
        )

    def _replace(self, op: Op, attributes: dict[str, Any]) -> None:
        index = next(index for index, other in enumerate(self._graph.ops) if other is op)
        self._graph.ops[index] = replace(op, attributes=attributes)


def attribute_value(value: Any) -> Any:
    """Convert an attribute: a bool to an integer, numpy scalars and arrays to Python numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return [attribute_value(item) for item in value]
    return value
