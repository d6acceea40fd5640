"""Device variables: the values of TensorFlow's variables on the replicas of a program.

Before a run, a variable that is stored in another order of ``axes`` is transposed, and one that is sharded over
replicas is divided; afterwards it is joined and transposed back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.hostio.traced_weight_copies import TracedWeightCopies
from ipu_emu.tensorflow.importer.axis_order import Axes
from ipu_emu.tensorflow.importer.values import on_device


def id_of(name: str) -> str:
    """The id of the tensor that holds a variable on the device."""
    return f"variable/{name}"


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
