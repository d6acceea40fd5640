"""HostWeights: the host's copies of a session's variables, and how they are exchanged with replicas and the user."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.optimisers.update_rule import zeros
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCUM, without_prefix
from ipu_emu.engine import Engine
from ipu_emu.errors import SessionError
from ipu_emu.graph import Graph, Tensor
from ipu_emu.hostio.feeds.array_feed import check_output_array, is_converted
from ipu_emu.hostio.traced_weight_copies import TracedWeightCopies
from ipu_emu.program.held_variables import replica_variables
from popdist_py.trace import Category

_Array = NDArray[Any]

#: Bytes of weights per copying thread: the first write to a new engine's memory faults its pages in, which is slow.
WORTH_A_THREAD = 64 << 20


class HostWeights:
    """Weights and optimiser states by id, one value per group of replicas: that of its first replica.

    ``read_from_all``: ids of the weights that the host reads from every replica.
    """

    def __init__(
        self, graph: Graph, gradients: Iterable[Gradient] = (), *, read_from_all: Collection[str] = ()
    ) -> None:
        self._graph, self._read_from_all = graph, frozenset(read_from_all)
        self.values = {
            id: data  # arrays are replaced, never written to
            for id, data in graph.data.items()
            if id in graph.tensors and graph.tensors[id].role.is_variable
        }
        #: Prefixes of tensors that are 0 between two steps.
        self.accumulators = {
            gradient.total: zeros(self.values[gradient.weight].shape, graph.tensor(gradient.total).dtype)
            for gradient in gradients
            if gradient.weight and gradient.total == ACCUM + gradient.weight
        }
        self._of_all_replicas: dict[str, _Array] = {}
        self._of_first: dict[str, _Array] = {}
        self._followed: list[str] = []

    def load(self, engine: Engine, *, fresh: bool = False) -> None:
        """Copy the host's values to all local replicas; the memory of a ``fresh`` engine is already zero."""
        self._of_first.clear()
        alone = engine.replicas.total == engine.replicas.local
        self._followed = [] if alone else replica_variables(engine.executable.graph)
        wanted = {id: value for id, value in self.values.items() if not (fresh and _is_zeros(value))}
        threads = min(_cpus(), 1 + sum(value.nbytes for value in wanted.values()) // WORTH_A_THREAD)
        if threads == 1:
            for id in wanted:
                self._write(engine, id)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(self._write, engine, id) for id in wanted]:
                done.result()

    def _write(self, engine: Engine, id: str) -> None:
        value, shards = self.values[id], self._graph.tensors[id].shards
        if shards is None:
            engine.write(id, value)
            return
        for replica in range(engine.replicas.local):
            own = shards.cut(value, engine.replicas.offset + replica, engine.replicas.total)
            np.copyto(engine.view(id, replica), own)

    def follow(self, engine: Engine) -> None:
        """Send the first replica's values of replica variables to all instances; all must call this after a run.

        After that a single instance can fetch them.
        """
        values = engine.replicas.of_first([engine.read(id) for id in self._followed])
        self._of_first = dict(zip(self._followed, values, strict=True))

    def fetch(self, engine: Engine) -> None:
        """Copy the device's values to the host.

        If values of groups or of all replicas are read, instances exchange theirs, so all of them must call this.
        """
        self._of_all_replicas.clear()
        with TracedWeightCopies(engine, "weights to the host", Category.WEIGHTS) as out:
            for id in self.values:
                self._fetch(id, engine, out)

    def _fetch(self, id: str, engine: Engine, out: TracedWeightCopies) -> None:
        tensor = self._graph.tensors[id]
        if tensor.group is None and not self._wants_all(id):
            self.values[id] = np.array(self._of_first[id]) if id in self._of_first else out.read(id)
            return
        everything = engine.replicas.all_gather(
            np.stack([out.read(id, replica) for replica in range(engine.replicas.local)])
        )
        if tensor.shards is not None:
            self.values[id] = tensor.shards.join(everything)
            return
        self.values[id] = everything[engine.replicas.representatives(tensor.group)].reshape(self.values[id].shape)
        if self._wants_all(id):
            self._of_all_replicas[id] = everything

    def take(self, id: str, value: _Array) -> None:
        """Set a value from a checkpoint: whole, or the shards of all replicas."""
        shards = self._graph.tensors[id].shards
        self.values[id] = np.array(value) if shards is None else shards.join(value)

    def _wants_all(self, id: str) -> bool:
        return not self._read_from_all.isdisjoint((id, without_prefix(id)))

    def read(self, arrays: Mapping[str, _Array]) -> None:
        """Copy to the user's arrays, of any shape with the right number of elements."""
        for id, array in arrays.items():
            check_output_array(id, array)
            value = self._of_all_replicas.get(id, self._value(id))
            if value.size != array.size:
                raise SessionError(
                    f"The array for tensor '{id}' has {array.size} elements; reading it needs {value.size}, as "
                    f"{list(value.shape)}"
                )
            is_converted(id, array.dtype, self._graph.tensor(id).dtype)
            np.copyto(array, value.reshape(array.shape))

    def write(self, arrays: Mapping[str, _Array]) -> None:
        """Set the values from the user's arrays: one per group, or one per replica (the first of a group is used)."""
        for id, array in arrays.items():
            old = self._value(id)
            value = np.asarray(array)
            is_converted(id, value.dtype, self._graph.tensor(id).dtype)
            value = value.astype(old.dtype, copy=False)
            if value.size != old.size and id in self._of_all_replicas:
                value = self._first_of_groups(self._graph.tensors[id], value.reshape(self._of_all_replicas[id].shape))
            if value.size != old.size:
                raise SessionError(
                    f"The array for tensor '{id}' has {value.size} elements; the tensor has {old.size}, as "
                    f"{list(old.shape)}"
                )
            self.values[id] = np.array(value).reshape(old.shape)

    def _first_of_groups(self, tensor: Tensor, values: _Array) -> _Array:
        stride, size = tensor.group or (1, len(values))
        members = [g // stride * stride * size + g % stride for g in range(len(values) // size)]
        chosen: _Array = values[members]
        return chosen

    def reset(self, initializers: Mapping[str, _Array], *, ignore_unknown: bool) -> None:
        """Set the values from the initializers of a model."""
        for id, value in initializers.items():
            if id not in self.values:
                if ignore_unknown or id in self.accumulators:
                    continue
                raise SessionError(f"resetWeights, no tensor '{id}' in tensors")
            old = self.values[id]
            if (value.shape, value.dtype) != (old.shape, old.dtype):
                raise SessionError(
                    f"Trying to reset weights using tensor with non matching tensor info. Tensor ID: {id}"
                )
            self.values[id] = np.array(value)

    def _value(self, id: str) -> _Array:
        if id in self.accumulators:
            return self.accumulators[id]
        if id not in self.values:
            raise SessionError(
                f"No weight or optimiser state '{id}' in the session; there are {', '.join(self.values)}"
            )
        return self.values[id]


def _cpus() -> int:
    """The number of CPUs of this instance, if those of a process are shared equally between all instances."""
    return max(1, len(os.sched_getaffinity(0)) // popdist_py.getNumInstances())


def _is_zeros(value: _Array) -> bool:
    """Whether ``value`` is an array of zeros whose elements all share one memory location."""
    return value.size > 1 and not any(value.strides) and not value.flat[0]
