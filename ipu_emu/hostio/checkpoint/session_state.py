"""Session state: the state with which a session resumes exactly, and the part that each instance of a job writes.

A variable that is equal on all replicas is written by one instance, such that all instances write about the same
number of bytes; a variable that differs between groups of replicas is written by the instance with the first replica
of each group. Of running statistics, which each replica computes from its own data, those of the first replica are
written.

    key            what it holds
    weights        the value of variable ``weights``
    bias@3         the value of variable ``bias`` in group 3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.graph import Role, Tensor, original_of
from ipu_emu.program.held_variables import replica_variables

_Array = NDArray[Any]


class Trainable(Protocol):
    """Protocol of a session that can be saved."""

    @property
    def engine(self) -> Engine:
        """The engine, which holds the values."""

    def restore(self, values: Mapping[str, _Array]) -> None:
        """Set variables, optimiser states and optimiser scalars."""


@dataclass(frozen=True)
class Entry:
    """A value to write: that of tensor ``id`` on local replica ``replica``."""

    key: str
    id: str
    replica: int


def stateful(engine: Engine) -> list[Tensor]:
    """Return variables, optimiser states, and scalars that the host may change, without copies on other IPUs."""
    graph, placed = engine.executable.graph, engine.executable.plan.placements

    def is_copy(tensor: Tensor) -> bool:
        original = original_of(tensor.id)
        return original != tensor.id and original in placed

    def is_stateful(tensor: Tensor) -> bool:
        return tensor.role.is_variable or (tensor.role is Role.SCALAR and not is_copy(tensor))

    return [tensor for tensor in graph.tensors.values() if tensor.id in placed and is_stateful(tensor)]


def groups_of(engine: Engine) -> dict[str, int]:
    """Return the number of groups of each tensor that differs between groups of replicas."""
    return {t.id: len(engine.replicas.representatives(t.group)) for t in stateful(engine) if t.group is not None}


def shares(engine: Engine, instance: int, instances: int) -> list[Entry]:
    """Return the entries that this instance writes."""
    replicas, mine, loads = engine.replicas, [], [0] * instances
    of_first = set(replica_variables(engine.executable.graph))
    for tensor in sorted(stateful(engine), key=lambda t: (-t.nbytes, t.id)):
        if tensor.group is None:
            owner = 0 if tensor.id in of_first else loads.index(min(loads))
            loads[owner] += tensor.nbytes
            if owner == instance:
                mine.append(Entry(tensor.id, tensor.id, 0))
            continue
        for group, first in enumerate(replicas.representatives(tensor.group)):
            if 0 <= first - replicas.offset < replicas.local:
                mine.append(Entry(f"{tensor.id}@{group}", tensor.id, first - replicas.offset))
    return mine


def joined(arrays: Mapping[str, _Array], groups: Mapping[str, int]) -> dict[str, _Array]:
    """Return values by id, stacked along a leading axis if groups differ; raise ValueError if a group is missing."""
    values = {key: array for key, array in arrays.items() if not _grouped(key, groups)}
    try:
        return values | {id: np.stack([arrays[f"{id}@{g}"] for g in range(count)]) for id, count in groups.items()}
    except KeyError as error:
        raise ValueError(f"it lacks {error}") from None


def _grouped(key: str, groups: Mapping[str, int]) -> bool:
    id, at, group = key.rpartition("@")
    return bool(at) and id in groups and group.isdecimal()


def mismatches(values: Mapping[str, _Array], tensors: Iterable[Tensor], groups: Mapping[str, int]) -> list[str]:
    """Return the differences between the values of a checkpoint and the tensors of a session."""
    wanted = {}
    for tensor in tensors:
        shape = (groups[tensor.id], *tensor.shape) if tensor.id in groups else tensor.shape
        wanted[tensor.id] = shape, np.dtype(tensor.dtype.numpy)
    missing = [f"the checkpoint lacks {id}" for id in wanted if id not in values]
    foreign = [f"the model has no {id}" for id in values if id not in wanted]
    different = [
        f"{id} is {_described(array.shape, array.dtype)} in the checkpoint, {_described(*wanted[id])} in the model"
        for id, array in values.items()
        if id in wanted and (array.shape, array.dtype) != wanted[id]
    ]
    return missing + foreign + different


def _described(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{dtype} {list(shape)}"
