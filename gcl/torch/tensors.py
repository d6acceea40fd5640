"""Tensors: PyTorch's CPU tensors as numpy arrays over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from gcl.errors import ArgumentError

#: The dtypes that gcl reduces: PyTorch's -> gcl's.
REDUCED: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.int32: np.dtype(np.int32),
    torch.uint32: np.dtype(np.uint32),
    torch.int64: np.dtype(np.int64),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.bool: np.dtype(np.bool_),
}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a contiguous ``tensor`` that gcl reduces, as [1, n] over the same memory."""
    return bytes_of(tensor).view(REDUCED[tensor.dtype])[None]


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a contiguous ``tensor`` of any dtype, over the same memory."""
    nbytes = tensor.numel() * tensor.element_size()
    return np.asarray(_Memory(tensor, nbytes)) if nbytes else np.empty(0, np.uint8)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy of it, whose bytes are its elements in order: no view that conjugates or negates them."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class _Memory:
    """The array interface of ``tensor``, which keeps the tensor alive.

    ``tensor.numpy()`` would prevent resizing of its storage, which FSDP does with parameters.
    """

    def __init__(self, tensor: torch.Tensor, nbytes: int) -> None:
        self._tensor = tensor
        data = tensor.data_ptr(), False
        self.__array_interface__ = {"data": data, "shape": (nbytes,), "typestr": "|u1", "version": 3}


class Flat:
    """A contiguous form of ``tensor``, whose content ``store`` copies back.

    ``reads``: the content of ``tensor`` is needed.
    """

    def __init__(self, tensor: torch.Tensor, *, reads: bool = True) -> None:
        self._whole = tensor.detach()
        if self._whole.is_contiguous() and not self._whole.is_conj() and not self._whole.is_neg():
            self.tensor = self._whole
        else:
            self.tensor = contiguous(tensor) if reads else torch.empty(self._whole.shape, dtype=tensor.dtype)

    def store(self) -> None:
        if self.tensor is not self._whole:
            self._whole.copy_(self.tensor)

    def __enter__(self) -> torch.Tensor:
        return self.tensor

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.store()


def check_dense(tensors: Sequence[torch.Tensor], name: str) -> None:
    """Raise ArgumentError for tensors that the collective ``name`` does not support."""
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
