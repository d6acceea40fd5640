"""TensorInfo: element type and shape of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import DType, Tensor, dtype_named, dtype_of
from ipu_emu.popart.types.enums import DataType


class TensorInfo:
    """``TensorInfo("FLOAT", [2, 3])``, ``TensorInfo(np.float32, [2, 3])`` or ``TensorInfo(array)``.

    The type may be a DataType as well.
    """

    def __init__(self, kind: Any, shape: Sequence[int] | None = None) -> None:
        if shape is None:
            if not isinstance(kind, np.ndarray):
                raise EmulatorError("TensorInfo needs a type and a shape, or an array")
            shape = kind.shape
        if isinstance(kind, DataType):
            kind = kind.name
        self.dtype: DType = dtype_named(kind) if isinstance(kind, str) else dtype_of(kind)
        self._shape = tuple(index(size) for size in shape)
        if any(size < 0 for size in self._shape):
            raise EmulatorError(f"Shape {list(self._shape)} has a negative dimension; sizes start at 0")

    @classmethod
    def of(cls, tensor: Tensor) -> TensorInfo:
        """Describe a tensor of a graph."""
        return cls(tensor.dtype.name, tensor.shape)

    @property
    def described(self) -> tuple[DType, tuple[int, ...]]:
        """Element type and shape, as a graph has them."""
        return self.dtype, self._shape

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._shape)

    def data_type(self) -> str:
        """FLOAT, FLOAT16, INT32, ..."""
        return self.dtype.name

    def data_type_lcase(self) -> str:
        """The name of the numpy type: float32, float16, int32, ..."""
        return str(self.dtype.numpy)

    def nelms(self) -> int:
        """Number of elements."""
        return int(np.prod(self._shape, dtype=np.int64))

    def nbytes(self) -> int:
        """Size in bytes."""
        return self.nelms() * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and (self.dtype, self._shape) == (other.dtype, other._shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self._shape))

    def __repr__(self) -> str:
        return f"{self.dtype} {list(self._shape)}"


def getTensorInfo(array: np.ndarray[Any, Any]) -> TensorInfo:
    """Element type and shape of a NumPy array."""
    return TensorInfo(array)
