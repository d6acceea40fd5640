"""Callback feed: step data that user functions provide and receive, one micro-batch of one replica at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, SessionError
from ipu_emu.graph import Tensor
from ipu_emu.hostio.feeds.array_feed import check_output_array, is_converted

__all__ = ["CallbackFeed"]


class CallbackFeed:
    """Step data from callbacks: ``input(id, prefetch)`` and ``output(id)`` return arrays; completion is then called.

    The first chunk of an input in a step is requested with ``prefetch`` False, the others with True if streams are
    prefetched: ``input`` may then return None, and is called again with False.
    """

    def __init__(
        self,
        input: Callable[[str, bool], NDArray[Any] | None],
        input_complete: Callable[[str], object],
        output: Callable[[str], NDArray[Any]],
        output_complete: Callable[[str], object],
    ) -> None:
        self._input, self._input_complete = input, input_complete
        self._output, self._output_complete = output, output_complete
        self._tensors: Mapping[str, Tensor] = {}
        self._prefetch = False
        self._begun: set[str] = set()

    def attach(self, tensors: Mapping[str, Tensor], *, prefetch: bool = False) -> None:
        """Start a step: set the tensors of the chunks, and whether streams are prefetched."""
        self._tensors, self._prefetch = tensors, prefetch
        self._begun.clear()

    def read(self, id: str) -> NDArray[Any]:
        """Request the next chunk of an input."""
        chunk = self._input(id, True) if self._prefetch and id in self._begun else None
        if chunk is None:
            chunk = self._input(id, False)
        self._begun.add(id)
        if chunk is None:
            raise SessionError(f"[StepIOSplitter] IStepIO unexpectedly did not provide input data for tensor {id}")
        chunk = np.asarray(chunk)
        _check_contiguous(id, chunk, "input")
        tensor = self._tensors[id]
        if chunk.size != tensor.nelms:
            raise SessionError(f"The input callback gave {chunk.size} elements for {tensor}; give {tensor.nelms}")
        is_converted(id, chunk.dtype, tensor.dtype)
        copy = np.array(chunk, dtype=tensor.dtype.numpy)
        self._input_complete(id)
        return copy

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        chunk = self._output(id)
        check_output_array(id, chunk)
        _check_contiguous(id, chunk, "output")
        is_converted(id, chunk.dtype, self._tensors[id].dtype)
        if chunk.size != value.size:
            raise SessionError(
                f"The output callback gave an array of {chunk.size} elements for {id}; give one of {value.size}"
            )
        np.copyto(chunk.reshape(value.shape), value, casting="unsafe")
        self._output_complete(id)


def _check_contiguous(id: str, array: NDArray[Any], direction: str) -> None:
    if not array.flags.c_contiguous:
        raise EmulatorError(
            f"PyStepIOCallback is unable to use the numpy {direction} array for tensor '{id}' as it is not "
            "c-contiguous (a data conversion here could have a significant impact on performance and hence is not "
            "allowed)"
        )
