"""Op: one operation of a graph: its type, and the ids of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: A number, a string, a list of either, or a numpy array (the value of a constant).
Attribute = Any

#: The domain of PopART's own ops; ONNX's own domain is the empty string.
GRAPHCORE = "ai.graphcore"


class StepPhase(Enum):
    """The phase of a step that an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, order=True)
class Place:
    """The place of an op: an IPU of its replica, and a pipeline stage (for a backward op, that of its forward op)."""

    stage: int = 0
    ipu: int = 0


@dataclass(frozen=True)
class Op:
    """``outputs = type(inputs, attributes)``; an absent optional input is the empty string.

    An op with a ``guard``, the id of a BOOL scalar, runs only if that is true; otherwise its outputs are undefined.
    """

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    domain: str = ""
    version: int = 10
    name: str = ""
    phase: StepPhase = StepPhase.FORWARD
    place: Place = Place()
    guard: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The ids that the op reads: its inputs and its guard."""
        return (*self.inputs, self.guard) if self.guard else self.inputs

    @property
    def annotations(self) -> dict[str, Attribute]:
        """The attributes that say where and how the op runs, not what it computes."""
        return {name: value for name, value in self.attributes.items() if name.startswith("__")}

    @property
    def label(self) -> str:
        """Return the name of the op in messages."""
        return self.name or f"{self.type} ({', '.join(self.outputs)})"

    def __str__(self) -> str:
        text = f"{', '.join(self.outputs)} = {self.type}({', '.join(i or '-' for i in self.inputs)})"
        return f"{text} if {self.guard}" if self.guard else text
