"""CallbackFeed: step data that the user's functions hand over and take, one micro-batch of one replica a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import SessionError
from ipu_emu.graph import Tensor

__all__ = ["CallbackFeed"]


class CallbackFeed:
    """Calls ``input(id, prefetch)`` and ``output(id)`` for an array, then the completion function with the id."""

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

    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Say which tensors the chunks belong to."""
        self._tensors = tensors

    def read(self, id: str) -> NDArray[Any]:
        """Ask for the next chunk of an input."""
        chunk = self._input(id, False)
        if chunk is None:
            raise SessionError(f"[StepIOSplitter] IStepIO unexpectedly did not provide input data for tensor {id}")
        chunk = np.asarray(chunk)
        tensor = self._tensors[id]
        if chunk.size != tensor.nelms:
            raise SessionError(
                f"The input callback gave {chunk.size} elements for {tensor}, which needs {tensor.nelms}"
            )
        copy = np.array(chunk, dtype=tensor.dtype.numpy)
        self._input_complete(id)
        return copy

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        chunk = self._output(id)
        if chunk.size != value.size:
            raise SessionError(f"The output callback gave room for {chunk.size} elements of {id}, not {value.size}")
        np.copyto(chunk.reshape(value.shape), value, casting="unsafe")
        self._output_complete(id)
