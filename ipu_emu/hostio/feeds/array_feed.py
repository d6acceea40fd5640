"""Array feed: step data in the user's arrays, read and written chunk by chunk.

A chunk is one micro-batch of one replica. Each array has a cursor that advances by one chunk per access and wraps to
the start only when it reaches the end exactly; it is not reset between steps. Only the number of elements of an array
matters, not its shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, SessionError
from ipu_emu.graph import DType, Tensor, name_of
from popdist_py import trace

#: Element types of arrays that are converted, with the types of their tensors.
_CONVERTED = {("int64", "INT32"), ("uint64", "UINT32"), ("bfloat16", "FLOAT")}


def is_converted(id: str, actual: np.dtype[Any], dtype: DType) -> bool:
    """Whether step data of this type are converted for tensor ``id``; raise SessionError if they cannot be."""
    if actual == dtype.numpy:
        return False
    if (actual.name, dtype.name) in _CONVERTED:
        return True
    raise SessionError(
        f"Type discrepancy for tensor {id}. User provided : {name_of(actual)} and expected : {dtype}. Consider a "
        "custom copy here (as memcpy cannot be used)"
    )


def check_output_array(id: str, array: object) -> None:
    """Raise EmulatorError unless ``array`` is a writable numpy array."""
    if not isinstance(array, np.ndarray):
        raise EmulatorError(f"The output for tensor '{id}' is {array!r}; give a numpy array to write to")
    if not array.flags.writeable:
        raise EmulatorError(f"The output array for tensor '{id}' is read-only; give a writable array")


class ArrayFeed:
    """Input and output arrays by tensor id."""

    def __init__(self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        self.provide(inputs)
        self.outputs = {id: _Cursor(id, array, "output") for id, array in outputs.items()}
        self._tensors: Mapping[str, Tensor] = {}

    def provide(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Set the input arrays, and start with their first chunk."""
        self.inputs = {id: _Cursor(id, array, "input") for id, array in inputs.items()}

    @trace.span("hand over data", trace.Category.HOST_IO)
    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tensors of the arrays, and check element types."""
        self._tensors = tensors
        for id, cursor in self.inputs.items():
            if id in tensors:
                cursor.expect(tensors[id].dtype)
        for id, cursor in self.outputs.items():
            if id in tensors:
                is_converted(id, cursor.flat.dtype, tensors[id].dtype)

    def input_elements(self, id: str) -> int:
        """Elements of each input in a step."""
        return self._input(id).flat.size

    def output_elements(self, id: str) -> int:
        """Elements of each output in a step."""
        return self._output(id).flat.size

    def read(self, id: str) -> NDArray[Any]:
        """Return the next chunk of an input."""
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
    """The position of the next chunk in one array."""

    def __init__(self, id: str, array: NDArray[Any], direction: str) -> None:
        self.id = id
        if direction == "output":
            check_output_array(id, array)
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
        """Check the element type; 64-bit integers are converted to 32 bits, with one warning."""
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
                f"Tensor {self.id} has {self.flat.size} elements of step data; a chunk of {nelms} was requested at "
                f"element {self.position}. Give a whole number of chunks"
            )
        chunk = self.flat[self.position : end]
        self.position = 0 if end == self.flat.size else end
        return chunk if self.converted is None else chunk.astype(self.converted)
