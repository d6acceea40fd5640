"""Executable codec: programs, graphs and plans as plain values for msgpack, with arrays as separate blobs.

Only the classes listed here are ever constructed, from their own fields: a file cannot execute other code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.memory.offloading import ActivationStorage
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import DType, Graph, Op, Place, Role, Shards, StepPhase, Tensor, dtype_named
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import INSTRUCTIONS, Counter, Overlap, PipelineStage
from ipu_emu.program.memory_plan import Allocation, Lifetime, MemoryPlan

#: The classes that may be written and read in an executable.
_LISTED: tuple[tuple[type, ...], ...] = (
    (Graph, Op, Tensor, StepPhase, Place, Role, Shards),
    (Executable, Lifetime, MemoryPlan, Allocation, Anchor, Return, StepShape),
    (*INSTRUCTIONS, Counter, Overlap, PipelineStage),
    (Gradient, GradientReduction, Recomputation, ActivationStorage),
)
CLASSES: Mapping[str, type] = {cls.__name__: cls for group in _LISTED for cls in group}

#: Types that msgpack writes unchanged.
_PLAIN = (type(None), bool, int, float, str, bytes)


@lru_cache(maxsize=256)  # pure: one entry for each type in an executable
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass that are written; None for any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


class Encoder:
    """Encodes values; collects their arrays in ``blobs``."""

    def __init__(self) -> None:
        self.blobs: list[NDArray[Any]] = []

    def encode(self, value: Any) -> Any:
        """Return ``value`` as numbers, strings, lists and None; any other is a list that begins with its kind."""
        kind: Any = type(value)
        if kind in _PLAIN:
            return value
        names = _fields_of(kind)
        if names is not None and kind is not DType:
            return ["made", kind.__name__, self._all(getattr(value, name) for name in names)]
        if isinstance(value, list | tuple):
            return ["list" if isinstance(value, list) else "tuple", self._all(value)]
        if isinstance(value, Mapping):
            return ["dict", [[self.encode(k), self.encode(v)] for k, v in value.items()]]
        return self._rare(value)

    def _all(self, values: Iterable[Any]) -> list[Any]:
        return [value if type(value) in _PLAIN else self.encode(value) for value in values]

    def _rare(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return self.encode(value.item())
        if isinstance(value, np.ndarray):
            self.blobs.append(np.ascontiguousarray(value))
            return ["array", value.dtype.str, list(value.shape), len(self.blobs) - 1]
        if isinstance(value, DType):
            return ["dtype", value.name]
        if isinstance(value, Enum):
            return ["enum", type(value).__name__, value.name]
        if isinstance(value, set | frozenset):
            return ["set", self._all(sorted(value))]
        raise EmulatorError(f"{value!r} cannot be written to an executable")


class Decoder:
    """Reverses Encoder; ``blob`` returns the bytes of an array by number; only ``classes``, by name, are made."""

    def __init__(self, blob: Callable[[int], memoryview], classes: Mapping[str, type] = CLASSES) -> None:
        self.blob = blob
        self.classes = classes
        self.kinds: dict[str, Callable[..., Any]] = {
            "array": self._array,
            "dtype": dtype_named,
            "enum": self._enum,
            "made": lambda name, values: self.classes[name](*self._list(values)),
            "dict": lambda items: {self.decode(k): self.decode(v) for k, v in items},
            "list": self._list,
            "tuple": lambda items: tuple(self._list(items)),
            "set": lambda items: frozenset(self._list(items)),
        }

    def decode(self, value: Any) -> Any:
        """Raise KeyError, TypeError or ValueError for a value that was not made by an Encoder."""
        if type(value) is not list:
            return value
        kind, *rest = value
        return self.kinds[kind](*rest)

    def _array(self, dtype: str, shape: list[int], number: int) -> NDArray[Any]:
        return np.frombuffer(self.blob(number), np.dtype(dtype)).reshape(shape)

    def _enum(self, name: str, member: str) -> Any:
        members: Any = self.classes[name]
        return members[member]

    def _list(self, items: list[Any]) -> list[Any]:
        return [self.decode(item) if type(item) is list else item for item in items]
