"""Host variables: keeps the variables of a program on the device and in TensorFlow equal.

TensorFlow has the master copy. A variable is sent to the device only if TensorFlow's value is not the one that the
program returned last, so values that differ between replicas (statistics, states of metrics) are preserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, held_by, is_resource


class HostVariables:
    """The variables that a trace captures, and its other tensors of the host."""

    def __init__(self, trace: FunctionTrace) -> None:
        captures = trace.captures()
        self._handles = {trace.name_of(outer): outer for outer, _ in captures if is_resource(outer)}
        self._kinds = {name: held_by(handle)[0] for name, handle in self._handles.items()}
        self.inputs = {inner.name: outer.numpy() for outer, inner in captures if not is_resource(outer)}
        #: TensorFlow's tensors with the values on the device; references to them prevent changes of their memory.
        self._synced: dict[str, Any] = {}

    def to_device(self) -> dict[str, NDArray[Any]]:
        """The values of the variables whose value in TensorFlow has changed since the last call."""
        changed = {}
        with uninterrupted():
            for name, handle in self._handles.items():
                tensor = gen_resource_variable_ops.read_variable_op(handle, self._kinds[name])
                array, before = _array(tensor), self._synced.get(name)
                if before is None or _address(_array(before)) != _address(array):
                    changed[name] = array
                    self._synced[name] = tensor
        return changed

    def to_host(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Assign the values that a program has changed to TensorFlow's variables."""
        with uninterrupted():
            for name, array in values.items():
                kind = self._kinds[name]
                tensor = ops.convert_to_tensor(np.asarray(array, kind.as_numpy_dtype), kind)
                gen_resource_variable_ops.assign_variable_op(self._handles[name], tensor)
                self._synced[name] = tensor

    def forget(self) -> None:
        """Send all variables to the device the next time."""
        self._synced.clear()


def _array(tensor: Any) -> NDArray[Any]:
    """The memory of a tensor; a copy for types that have no buffers."""
    try:
        return np.asarray(memoryview(tensor))
    except ValueError:
        return np.asarray(tensor.numpy())


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
