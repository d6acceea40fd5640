"""Replicas: the local replicas of this instance among all replicas, and the collectives between them.

The only file of the engine that uses communicators of gcl.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gcl
import popdist_py
from ipu_emu.engine.replicas.buffers import aligned
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Op, Tensor
from ipu_emu.ops import Call
from ipu_emu.ops.communication.collective_ops import REDUCE_SCATTER, group_of, operator_of
from ipu_emu.ops.core.op_definition import call_chain
from ipu_emu.program.buckets import Bucket

#: The environment variable that enables ("1") or disables ("0") reductions during the backward pass.
REDUCE_EARLY = "IPU_EMU_REDUCE_EARLY"
#: Transports whose messages cross a network.
_BETWEEN_HOSTS = ("hosts", "mpi")

#: (stride, size) of a group of replicas; None: all replicas.
Grouping = tuple[int, int] | None
#: The element type as which bytes are sent.
_WORD = np.dtype(np.int32)
#: Creates the communicator of groups; None: one group of all replicas.
Connect = Callable[[gcl.Group | None], gcl.Communicator]


class Replicas:
    """``local`` replicas of this instance, the first of which has the global index ``offset``."""

    def __init__(self, *, local: int, offset: int, total: int, connect: Connect | None = None) -> None:
        self.local = local
        self.offset = offset
        self.total = total
        self._connect = connect or self._join
        self._communicators: dict[Grouping, gcl.Communicator] = {}

    @property
    def communicator(self) -> gcl.Communicator:
        """The communicator of all replicas."""
        return self.within(None)

    def within(self, grouping: Grouping) -> gcl.Communicator:
        """The communicator of each group, made at its first use, which must happen on every instance."""
        if grouping == (1, self.total):
            grouping = None
        if grouping not in self._communicators:
            group = None if grouping is None else gcl.Group(self.total, *grouping)
            self._communicators[grouping] = self._connect(group)
        return self._communicators[grouping]

    def _join(self, group: gcl.Group | None) -> gcl.Communicator:
        """Connect to the other instances, even if the program has not called popdist's ``init``."""
        if self.total > self.local:
            popdist_py.init()
        try:
            return gcl.connect(
                local_replicas=self.local, global_offset=self.offset, global_replicas=self.total, group=group
            )
        except gcl.ArgumentError as error:
            raise EmulatorError(f"The replicas of the instances are inconsistent: {error}") from None

    def group_of(self, replica: int, grouping: Grouping) -> int:
        """The group of a local replica."""
        return 0 if grouping is None else gcl.Group(self.total, *grouping).of(self.offset + replica)

    def representatives(self, grouping: Grouping) -> list[int]:
        """The first replica of each group."""
        if grouping is None:
            return [0]
        return [members[0] for members in gcl.Group(self.total, *grouping).all_members()]

    def bucket(self, bucket: Bucket, nbytes: int) -> NDArray[Any]:
        """Zeroed memory [local replicas, nbytes / itemsize] that a collective reduces in place."""
        nelms, dtype = nbytes // bucket.dtype.itemsize, bucket.dtype.numpy
        if self.total == 1:
            return aligned(nelms * dtype.itemsize).view(dtype).reshape(1, nelms)
        return self.within(bucket.group).empty((nelms,), dtype)

    def all_reduce(self, bucket: Bucket, array: NDArray[Any], operator: str) -> Call:
        """The prepared call that combines ``array`` over the replicas of each group in place."""
        return partial(self.within(bucket.group).all_reduce, array, operator, out=array)

    @property
    def reduces_early(self) -> bool:
        """Whether gradients are reduced during the backward pass: by default if messages cross a network."""
        if self.total == self.local:
            return False
        setting = os.environ.get(REDUCE_EARLY, "")
        return setting == "1" if setting else self.communicator.transport in _BETWEEN_HOSTS

    @property
    def one_each(self) -> bool:
        """Whether every instance has one replica."""
        return self.communicator.ranks == self.total

    def beginning(self, bucket: Bucket, array: NDArray[Any], operator: str) -> Callable[[], gcl.Handle[Any]]:
        """The prepared call that begins to combine ``array`` over the replicas of each group in place."""
        return partial(self.within(bucket.group).all_reduce_async, array, operator, out=array)

    def all_gather(self, array: NDArray[Any]) -> NDArray[Any]:
        """Gather [local replicas, ...] of every instance as [all replicas, ...]."""
        return array if self.total == self.local else self.communicator.all_gather(array)[0]

    def of_first(self, values: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the values of the first replica on every instance; ``values``: of the first local replica."""
        if not values:
            return []
        sent = np.concatenate([value.reshape(-1).view(np.uint8) for value in values])
        words = self.communicator.empty((-(-sent.nbytes // _WORD.itemsize),), _WORD)
        words.view(np.uint8)[0, : sent.nbytes] = sent
        received = np.array(self.communicator.broadcast(words, 0, out=words)).view(np.uint8)[0]
        ends = np.cumsum([value.nbytes for value in values])
        parts = [received[end - value.nbytes : end] for end, value in zip(ends, values, strict=True)]
        return [part.view(value.dtype).reshape(value.shape) for part, value in zip(parts, values, strict=True)]

    def collective(
        self, op: Op, source: Tensor, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
    ) -> Call:
        """The prepared call of an op between replicas, whose operands are copied to and from shared memory."""
        communicator = self.within(group_of(op, self.total))
        scatters, operator = op.type == REDUCE_SCATTER, operator_of(op)
        shape = (source.nelms,) if scatters else source.shape
        sent = communicator.empty(shape, source.dtype.numpy)
        taken = communicator.empty(outputs[0].shape, source.dtype.numpy) if scatters else sent
        call = communicator.reduce_scatter if scatters else communicator.all_reduce
        return call_chain(
            # The ellipsis keeps a single element an array.
            *(partial(np.copyto, sent[i, ...].reshape(x.shape), x) for i, x in enumerate(inputs)),
            partial(call, sent, operator, out=taken),
            *(partial(np.copyto, y, taken[i, ...]) for i, y in enumerate(outputs)),
        )

    def close(self) -> None:
        """Disconnect from the collectives, if connected."""
        for communicator in self._communicators.values():
            communicator.close()
        self._communicators.clear()
