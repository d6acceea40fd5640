"""ArrayFeed: step data in arrays of the user, read and written chunk by chunk.

A chunk is one micro-batch of one replica. Each array has a cursor that moves on by one chunk per fetch and returns to
the start only when it hits the end exactly; it is not reset between steps. Only the number of elements counts, never
the shape of an array.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, SessionError
from ipu_emu.graph import DType, Tensor, name_of

__all__ = ["ArrayFeed", "check_room", "is_converted"]


#: Element types of arrays, and those of the tensors that take them.
_CONVERTED = {("int64", "INT32"), ("uint64", "UINT32")}


def is_converted(id: str, found: np.dtype[Any], dtype: DType) -> bool:
    """Whether step data of a type is converted for the tensor ``id``; raise SessionError for what does not fit."""
    if found == dtype.numpy:
        return False
    if (found.name, dtype.name) in _CONVERTED:
        return True
    raise SessionError(
        f"Type discrepancy for tensor {id}. User provided : {name_of(found)} and expected : {dtype}. Consider a "
        "custom copy here (as memcpy cannot be used)"
    )


def check_room(id: str, array: object) -> None:
    """Raise EmulatorError unless ``array`` can be written to."""
    if not isinstance(array, np.ndarray):
        raise EmulatorError(f"The output for tensor '{id}' is {array!r}; give a numpy array, which is written to")
    if not array.flags.writeable:
        raise EmulatorError(f"The output array for tensor '{id}' is read-only; give one that can be written to")


class ArrayFeed:
    """Inputs and outputs by tensor id."""

    def __init__(self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        self.provide(inputs)
        self.outputs = {id: _Cursor(id, array, "output") for id, array in outputs.items()}
        self._tensors: Mapping[str, Tensor] = {}

    def provide(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Set the arrays of inputs, and begin at their start."""
        self.inputs = {id: _Cursor(id, array, "input") for id, array in inputs.items()}

    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Say which tensors the chunks belong to, and check element types."""
        self._tensors = tensors
        for id, cursor in self.inputs.items():
            if id in tensors:
                cursor.expect(tensors[id].dtype)
        for id, cursor in self.outputs.items():
            if id in tensors:
                is_converted(id, cursor.flat.dtype, tensors[id].dtype)

    def input_elements(self, id: str) -> int:
        return self._input(id).flat.size

    def output_elements(self, id: str) -> int:
        return self._output(id).flat.size

    def read(self, id: str) -> NDArray[Any]:
        """The next chunk of an input."""
        return self._input(id).next(self._tensors[id].nelms)

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        chunk = self._output(id).next(value.size)
        np.copyto(chunk.reshape(value.shape), value, casting="unsafe")

    def _input(self, id: str) -> _Cursor:
        if id not in self.inputs:
            raise SessionError(f"No tensor {id} provided in PyStepIO's inputs")
        return self.inputs[id]

    def _output(self, id: str) -> _Cursor:
        if id not in self.outputs:
            raise SessionError(f"No tensor {id} provided in PyStepIO's outputs")
        return self.outputs[id]


class _Cursor:
    """A position in one array."""

    def __init__(self, id: str, array: NDArray[Any], direction: str) -> None:
        self.id = id
        if direction == "output":
            check_room(id, array)
        array = np.asarray(array)
        if not array.flags.c_contiguous:
            raise EmulatorError(
                f"PyStepIO is unable to use the numpy {direction} array for tensor '{id}' as it is not c-contiguous "
                "(a data conversion here could have a significant impact on performance and hence is not allowed)"
            )
        self.flat = array.reshape(-1)
        self.position = 0
        self.converted: np.dtype[Any] | None = None

    def expect(self, dtype: DType) -> None:
        """Check the element type; integers of 64 bits are converted to those of 32, with one warning."""
        if not is_converted(self.id, self.flat.dtype, dtype):
            self.converted = None
            return
        if self.converted is None:
            wide = name_of(self.flat.dtype)
            warnings.warn(f"Tensor {self.id}: {wide} step data is converted to {dtype}", stacklevel=4)
        self.converted = dtype.numpy

    def next(self, nelms: int) -> NDArray[Any]:
        end = self.position + nelms
        if end > self.flat.size:
            raise SessionError(
                f"Tensor {self.id} has {self.flat.size} elements of step data; a chunk of {nelms} was asked for at "
                f"element {self.position}. Give it a whole number of chunks"
            )
        chunk = self.flat[self.position : end]
        self.position = 0 if end == self.flat.size else end
        return chunk if self.converted is None else chunk.astype(self.converted)
