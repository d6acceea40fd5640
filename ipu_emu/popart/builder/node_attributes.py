"""NodeAttributes: the part of the Builder that reads and changes attributes of nodes that exist already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op
from ipu_emu.popart.builder.attribute_values import attribute_value

__all__ = ["NodeAttributes"]


class NodeAttributes:
    """A node is named by all of its outputs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """What has been built so far. An extension of PopART."""
        return self._graph

    def addNodeAttribute(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute to the node that makes ``outputs``."""
        if name in self._node(outputs).attributes:
            raise EmulatorError(f"Node already has attribute {name}.")
        self._set_attribute(outputs, name, value)

    def nodeHasAttribute(self, name: str, outputs: set[str]) -> bool:
        return name in self._node(outputs).attributes

    def getAllNodeAttributeNames(self, outputs: set[str]) -> list[str]:
        return list(self._node(outputs).attributes)

    def removeNodeAttribute(self, name: str, outputs: set[str]) -> None:
        op = self._node(outputs)
        if name not in op.attributes:
            raise EmulatorError(f"Cannot remove attribute {name} as it does not exist.")
        self._replace(op, {key: value for key, value in op.attributes.items() if key != name})

    def getInt64NodeAttribute(self, name: str, outputs: set[str]) -> int:
        value: int = self._typed(name, outputs, lambda value: isinstance(value, int), "an integer")
        return value

    def getInt64VectorNodeAttribute(self, name: str, outputs: set[str]) -> list[int]:
        value: list[int] = self._typed(name, outputs, lambda value: _all(value, int), "an integer vector")
        return value

    def getFloatNodeAttribute(self, name: str, outputs: set[str]) -> float:
        value: float = self._typed(name, outputs, lambda value: isinstance(value, float), "a float")
        return value

    def getFloatVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[float]:
        value: list[float] = self._typed(name, outputs, lambda value: _all(value, float), "a float vector")
        return value

    def getStringNodeAttribute(self, name: str, outputs: set[str]) -> str:
        value: str = self._typed(name, outputs, lambda value: isinstance(value, str), "a string")
        return value

    def getStringVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[str]:
        value: list[str] = self._typed(name, outputs, lambda value: _all(value, str), "a string vector")
        return value

    def getBoolNodeAttribute(self, name: str, outputs: set[str]) -> bool:
        return bool(self.getInt64NodeAttribute(name, outputs))

    def _typed(self, name: str, outputs: set[str], fits: Any, kind: str) -> Any:
        attributes = self._node(outputs).attributes
        if name not in attributes:
            raise EmulatorError(f"Node does not have an attribute {name}.")
        if not fits(attributes[name]):
            raise EmulatorError(f"Attribute {name} is not {kind}.")
        return attributes[name]

    def _node(self, outputs: set[str]) -> Op:
        for op in self._graph.ops:
            if set(op.outputs) == set(outputs):
                return op
        raise EmulatorError(
            f"Could not find a node with outputs {', '.join(sorted(outputs))}. Must specify all outputs of a node"
        )

    def _set_attribute(self, outputs: set[str], name: str, value: Any) -> None:
        op = self._node(outputs)
        self._replace(op, {**op.attributes, name: attribute_value(value)})

    def _replace(self, op: Op, attributes: dict[str, Any]) -> None:
        index = next(index for index, other in enumerate(self._graph.ops) if other is op)
        self._graph.ops[index] = replace(op, attributes=attributes)


def _all(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
