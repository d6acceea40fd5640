"""Device variables: the values of TensorFlow's variables on the replicas of a program.

A variable that is divided between replicas is cut before a run, and joined after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.tensorflow.importer.values import on_device

__all__ = ["id_of", "read_variable", "write_variable"]


def id_of(name: str) -> str:
    """The id of the tensor that holds a variable on the device."""
    return f"variable/{name}"


def write_variable(engine: Engine, name: str, value: NDArray[Any]) -> None:
    """Set a variable on all local replicas; one that the program does not use is passed over."""
    tensor = engine.executable.graph.tensors.get(id_of(name))
    if tensor is None:
        return
    if tensor.shards is None:
        engine.write(tensor.id, on_device(value))
        return
    own = on_device(value)
    for replica in range(engine.replicas.local):
        shard = tensor.shards.cut(own, engine.replicas.offset + replica, engine.replicas.total)
        np.copyto(engine.view(tensor.id, replica), shard, casting="unsafe")


def read_variable(engine: Engine, name: str) -> NDArray[Any]:
    """The value on the first local replica; all instances must read a variable that is divided."""
    tensor = engine.executable.graph.tensors[id_of(name)]
    if tensor.shards is None:
        return engine.read(tensor.id)
    local = np.stack([engine.read(tensor.id, replica) for replica in range(engine.replicas.local)])
    return tensor.shards.join(engine.replicas.all_gather(local))
