"""Codec: programs, graphs and plans as plain values for msgpack, and arrays as blobs beside them.

Only what is listed here is ever made again, and only from its own fields: no file can name anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import DType, Graph, Op, Phase, Place, Role, Shards, Tensor, dtype_named
from ipu_emu.program import anchors, instructions
from ipu_emu.program.executable import Executable
from ipu_emu.program.memory import Life, MemoryPlan, Placement
from ipu_emu.transforms.checkpoints import Recomputation
from ipu_emu.transforms.offloading import ActivationStorage
from ipu_emu.transforms.training import Gradient, Reduction

__all__ = ["Decoder", "Encoder"]

_LISTED = [
    Graph,
    Op,
    Tensor,
    Phase,
    Place,
    Role,
    Shards,
    Executable,
    Life,
    MemoryPlan,
    Placement,
    Gradient,
    Reduction,
    Recomputation,
    ActivationStorage,
]


def _classes() -> dict[str, type]:
    found = [*_LISTED, *vars(instructions).values(), *vars(anchors).values()]
    kinds = [c for c in found if isinstance(c, type) and (is_dataclass(c) or issubclass(c, Enum))]
    return {c.__name__: c for c in kinds}


class Encoder:
    """``blobs`` grows with the arrays that are met."""

    def __init__(self) -> None:
        self.blobs: list[NDArray[Any]] = []

    def encode(self, value: Any) -> Any:
        """``value`` as numbers, texts, lists and None; what is none of these is a list that begins with its kind."""
        if value is None or (isinstance(value, bool | int | float | str | bytes) and not isinstance(value, Enum)):
            return value
        if isinstance(value, np.generic):
            return self.encode(value.item())
        if isinstance(value, np.ndarray):
            self.blobs.append(np.ascontiguousarray(value))
            return ["array", value.dtype.str, list(value.shape), len(self.blobs) - 1]
        if isinstance(value, DType):
            return ["dtype", value.name]
        if isinstance(value, Enum):
            return ["enum", type(value).__name__, value.name]
        if is_dataclass(value):
            made = [self.encode(getattr(value, field.name)) for field in fields(value)]
            return ["made", type(value).__name__, made]
        if isinstance(value, Mapping):
            return ["dict", [[self.encode(k), self.encode(v)] for k, v in value.items()]]
        if isinstance(value, list | tuple):
            return ["list" if isinstance(value, list) else "tuple", [self.encode(item) for item in value]]
        if isinstance(value, set | frozenset):
            return ["set", [self.encode(item) for item in sorted(value)]]
        raise EmulatorError(f"{value!r} cannot be written to an executable")


class Decoder:
    """The inverse of Encoder; ``blob`` gives the bytes of an array by number."""

    def __init__(self, blob: Callable[[int], memoryview]) -> None:
        self.blob = blob
        self.classes = _classes()

    def decode(self, value: Any) -> Any:
        """Raise KeyError, TypeError or ValueError for what no Encoder made."""
        if not isinstance(value, list):
            return value
        kind, *rest = value
        return getattr(self, f"_{_KINDS[kind]}")(*rest)

    def _array(self, dtype: str, shape: list[int], number: int) -> NDArray[Any]:
        return np.frombuffer(self.blob(number), np.dtype(dtype)).reshape(shape)

    def _dtype(self, name: str) -> DType:
        return dtype_named(name)

    def _enum(self, name: str, member: str) -> Any:
        members: Any = self.classes[name]
        return members[member]

    def _made(self, name: str, values: list[Any]) -> Any:
        return self.classes[name](*(self.decode(item) for item in values))

    def _dict(self, items: list[list[Any]]) -> dict[Any, Any]:
        return {self.decode(k): self.decode(v) for k, v in items}

    def _list(self, items: list[Any]) -> list[Any]:
        return [self.decode(item) for item in items]

    def _tuple(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in items)

    def _set(self, items: list[Any]) -> frozenset[Any]:
        return frozenset(self.decode(item) for item in items)


_KINDS = {kind: kind for kind in ("array", "dtype", "enum", "made", "dict", "list", "tuple", "set")}
