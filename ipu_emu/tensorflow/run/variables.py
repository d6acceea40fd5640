"""Variables of a program: their values on the replicas, which are kept equal to TensorFlow's.

TensorFlow has the master copy. A variable is sent to the device only if TensorFlow's value is not the one that the
program returned last, so values that differ between replicas (statistics, states of metrics) are preserved. One that
is stored in another order of ``axes`` is transposed before a run and back after it, a sharded one divided and joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from gcl.kernels.copies import start_of
from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.engine import Engine
from ipu_emu.hostio.traced_weight_copies import TracedWeightCopies
from ipu_emu.tensorflow.importer.axis_order import Axes
from ipu_emu.tensorflow.importer.values import id_of, on_device
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
                if before is None or start_of(_array(before)) != start_of(array):
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


def write_variable(engine: Engine, name: str, value: NDArray[Any], axes: Axes | None = None) -> None:
    """Set a variable on all local replicas; one that the program does not use is ignored."""
    tensor = engine.executable.graph.tensors.get(id_of(name))
    if tensor is None:
        return
    own = on_device(value)
    if axes is not None:
        own = own.transpose(axes)
    if tensor.shards is None:
        engine.write(tensor.id, own)
        return
    for replica in range(engine.replicas.local):
        shard = tensor.shards.cut(own, engine.replicas.offset + replica, engine.replicas.total)
        np.copyto(engine.view(tensor.id, replica), shard, casting="unsafe")


def read_variable(engine: Engine, name: str, out: TracedWeightCopies, axes: Axes | None = None) -> NDArray[Any]:
    """The value on the first local replica; all instances must read a sharded variable."""
    tensor = engine.executable.graph.tensors[id_of(name)]
    if tensor.shards is None:
        with out.copying(tensor.id):
            return _ordered(engine.view(tensor.id), axes)
    local = np.stack([out.read(tensor.id, replica) for replica in range(engine.replicas.local)])
    return _ordered(tensor.shards.join(engine.replicas.all_gather(local)), axes)


def _ordered(value: NDArray[Any], axes: Axes | None) -> NDArray[Any]:
    """A copy in the order of axes of the program."""
    return np.array(value if axes is None else value.transpose(np.argsort(axes)), order="C")
