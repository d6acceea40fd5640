"""Tensors: PyTorch's CPU tensors as numpy arrays over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from gcl.errors import ArgumentError

__all__ = ["REDUCED", "Flat", "array_of", "bytes_of", "check_dense"]

#: What gcl reduces: PyTorch's dtype -> one of the same size that numpy shares memory with, and gcl's dtype.
REDUCED: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.float32: (torch.float32, np.dtype(np.float32)),
    torch.float64: (torch.float64, np.dtype(np.float64)),
    torch.float16: (torch.float16, np.dtype(np.float16)),
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.int32: (torch.int32, np.dtype(np.int32)),
    torch.uint32: (torch.uint32, np.dtype(np.uint32)),
    torch.int64: (torch.int64, np.dtype(np.int64)),
    torch.int8: (torch.int8, np.dtype(np.int8)),
    torch.uint8: (torch.uint8, np.dtype(np.uint8)),
    torch.bool: (torch.bool, np.dtype(np.bool_)),
}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a contiguous ``tensor`` that gcl reduces, as [1, n] over the same memory."""
    seen, dtype = REDUCED[tensor.dtype]
    flat = _flat(tensor)
    array: np.ndarray = (flat if seen is tensor.dtype else flat.view(seen)).numpy()
    return (array if array.dtype == dtype else array.view(dtype))[None]


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a contiguous ``tensor`` of any dtype, over the same memory."""
    found: np.ndarray = _flat(tensor).view(torch.uint8).numpy()
    return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous ``tensor`` as [n]; one of a single element may have any stride."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


class Flat:
    """A contiguous form of ``tensor``, whose content goes back to it at ``store``.

    ``reads``: the content of ``tensor`` is needed.
    """

    def __init__(self, tensor: torch.Tensor, *, reads: bool = True) -> None:
        self._whole = tensor.detach()
        if self._whole.is_contiguous() and not self._whole.is_conj():
            self.tensor = self._whole
        else:
            self.tensor = self._whole.contiguous() if reads else torch.empty(self._whole.shape, dtype=tensor.dtype)

    def store(self) -> None:
        if self.tensor is not self._whole:
            self._whole.copy_(self.tensor)

    def __enter__(self) -> torch.Tensor:
        return self.tensor

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.store()


def check_dense(tensors: Sequence[torch.Tensor], name: str) -> None:
    """Raise ArgumentError for tensors that a collective called ``name`` does not take."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise ArgumentError(
                f"{name} of a sparse tensor is not supported by gcl; pass tensor.to_dense(), or use gloo for it"
            )
        if tensor.device.type != "cpu":
            raise ArgumentError(
                f"{name} of a tensor on {tensor.device} is not supported by gcl; pass tensor.cpu(), or give that "
                'device a back end of its own, as in init_process_group("cpu:gcl,cuda:nccl")'
            )
