"""Element types on the device: PyTorch's 64-bit types and bfloat16 become 32-bit types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.graph import DType
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.graph.narrowing import narrowed

_NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float32,
    torch.bfloat16: np.float32,
    torch.float16: np.float16,
    torch.int64: np.int32,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}
_WIDE = {torch.float64: dtype_of(np.float64), torch.int64: dtype_of(np.int64)}


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the element type on the device as a numpy type; raise TypeError for unsupported types."""
    if dtype not in _NUMPY:
        raise TypeError(f"{dtype} tensors are not supported on IPUs; use one of {', '.join(map(str, _NUMPY))}")
    return np.dtype(_NUMPY[dtype])


def device_dtype(dtype: torch.dtype) -> DType:
    """Return the element type on the device."""
    return dtype_of(numpy_dtype(dtype))


def wide_dtype(dtype: torch.dtype) -> DType:
    """Return the element type of a tensor on the host, of which 64 bits stay."""
    return _WIDE.get(dtype) or device_dtype(dtype)


def as_numpy(tensor: torch.Tensor, *, copy: bool = False) -> NDArray[Any]:
    """Return the elements with the device's type, in C order; warn of values that do not fit."""
    plain = tensor.detach()
    if plain.dtype is torch.bfloat16:
        plain = plain.float()
    array = np.ascontiguousarray(plain.numpy(force=True))
    wanted = numpy_dtype(tensor.dtype)
    if array.dtype != wanted:
        return narrowed(array, wanted).reshape(tuple(tensor.shape))
    return (array.copy() if copy else array).reshape(tuple(tensor.shape))
