"""Values: the imported form of a tensor of TensorFlow.

Known       its value: it is folded
Held        a tensor of the emulator's graph
Variable    the handle of a variable
TensorList  the elements of a list of tensors
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import DType, dtype_of
from ipu_emu.graph.narrowing import narrowed
from ipu_emu.ops import Value

_NARROWED = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32, np.dtype(np.float64): np.float32}


def on_device(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` in the device's element type, of at most 32 bits; warn of values that do not fit."""
    return narrowed(array, _NARROWED[array.dtype]) if array.dtype in _NARROWED else array


def device_dtype(numpy: Any) -> DType:
    """Return the device's type for a numpy type; raise EmulatorError for unsupported types."""
    kind = np.dtype(numpy)
    return dtype_of(_NARROWED.get(kind, kind))


@dataclass(frozen=True)
class Known:
    """A value that is known when the graph is built, in TensorFlow's type."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True)
class Held:
    """A tensor of the graph. An image batch that is ``channels_first`` is [N, H, W, C] for TensorFlow but held as
    [N, C, H, W], as convolutions take it.
    """

    value: Value
    channels_first: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that TensorFlow sees."""
        shape = self.value.tensor.shape
        return (shape[0], shape[2], shape[3], shape[1]) if self.channels_first else shape

    @property
    def dtype(self) -> DType:
        return self.value.tensor.dtype


@dataclass(frozen=True)
class Variable:
    """The handle of the variable ``name``."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


def id_of(name: str) -> str:
    """The id of the tensor that holds a variable on the device."""
    return f"variable/{name}"


@dataclass(frozen=True)
class TensorList:
    """A list whose elements all have ``shape``; an element that is not set is None."""

    items: tuple[Any, ...]
    shape: tuple[int, ...] | None = None
    dtype: Any = None


Imported = Known | Held | Variable | TensorList
