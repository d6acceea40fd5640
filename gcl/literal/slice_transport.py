"""Slice transport: moves the slices of a step program between ranks, by shared memory, messages, or both.

memory     each replica has two slots in its rank's segment, used in turn, so one meeting per exchange is enough

           exchange 1     write set 0    meet    read set 0 of the senders
           exchange 2     write set 1    meet    read set 1
           exchange 3     write set 0    ...     no rank still reads set 0: all have met since

messages   all receives are posted, then all sends; between two ranks they match in the order of the program
hosts      memory within a host, messages between hosts
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from gcl.core.data_path import DataPath
from gcl.core.operators import Operator
from gcl.core.request import Request
from gcl.core.world import World
from gcl.scheduling.program.interpreter import InterpreterState
from gcl.scheduling.program.step_program import CrossReplicaCopy, Exchange
from gcl.transport.memory.segment import array_at
from gcl.transport.paths.hierarchical_path import HierarchicalPath
from gcl.transport.paths.memory_path import MemoryPath
from gcl.transport.paths.message_path import MessagePath

States = Mapping[int, InterpreterState]

_LINE = 64  # bytes; sets begin on one


class SliceTransport(Protocol):
    """Moves slices between ranks; all ranks begin and end the same requests in the same order."""

    def begin(self, request: Request, elements: int, dtype: np.dtype[Any]) -> None:
        """Prepare for exchanges in which a replica sends at most ``elements`` of at most ``dtype``'s size."""

    def carry(self, exchange: Exchange, states: States) -> None:
        """Carry out all copies of ``exchange`` that start or end on the replicas of ``states``."""

    def end(self) -> None:
        """Finish the request after its last exchange."""


def transport_for(path: DataPath, world: World) -> SliceTransport:
    """The transport of slices over the memory or the messages of ``path``."""
    if isinstance(path, MemoryPath):
        return _MemoryTransport(path, range(world.replicas), world.local)
    if isinstance(path, MessagePath):
        return _MessageTransport(path, world)
    assert isinstance(path, HierarchicalPath)
    return _HierarchicalTransport(path, world)


class _MemoryTransport:
    """Carries slices between the replicas of one host, ``here``."""

    def __init__(self, memory: MemoryPath, here: Collection[int], local: int) -> None:
        self._memory, self._local = memory, local
        #: each replica's place on the host
        self.here = {replica: index for index, replica in enumerate(here)}
        self._mine = np.empty((local, 0), np.uint8)
        self._addresses: list[int] = []
        self._slot_bytes = -1
        self._turn = 0

    def begin(self, request: Request, elements: int, dtype: np.dtype[Any]) -> None:
        self._request, self._turn = request, 0
        nbytes = -(-elements * dtype.itemsize // _LINE) * _LINE
        if nbytes > self._slot_bytes:
            self._grow(nbytes)

    def carry(self, exchange: Exchange, states: States) -> None:
        self.put(exchange, states)
        self.take(exchange, states)

    def put(self, exchange: Exchange, states: States) -> None:
        """Write what local replicas send to other ranks of the host."""
        self._turn ^= 1
        for copy, start in _places(exchange):
            for sender, receiver in copy.pairs():
                if sender in states and receiver not in states and receiver in self.here:
                    source = states[sender].view(copy.source)
                    self._slot(sender, start, source)[...] = source

    def take(self, exchange: Exchange, states: States) -> None:
        """Meet, then read what local replicas receive, also from each other."""
        self._memory.meet(self._request)
        for copy, start in _places(exchange):
            for sender, receiver in copy.pairs():
                if receiver in states and sender in self.here:
                    target = states[receiver].view(copy.target)
                    local = sender in states
                    target[...] = states[sender].view(copy.source) if local else self._slot(sender, start, target)

    def end(self) -> None:
        self._memory.meet(self._request)

    def _grow(self, nbytes: int) -> None:
        """Allocate larger slots, and exchange their addresses."""
        self._mine = self._memory.empty((self._local, 2 * nbytes), np.dtype(np.uint8))
        request = Request(None, Operator.ADD, self._mine.dtype, 2 * nbytes)
        self._addresses = self._memory.addresses(request, self._mine)
        self._slot_bytes = nbytes

    def _slot(self, sender: int, start: int, like: np.ndarray) -> np.ndarray:
        """Elements of the current slot of ``sender`` from ``start`` on, with the shape and dtype of ``like``."""
        address = self._addresses[self.here[sender]] + self._turn * self._slot_bytes
        return array_at(address + start * like.itemsize, like.shape, like.dtype)


class _MessageTransport:
    """Carries slices between ranks that share no memory."""

    def __init__(self, path: MessagePath, world: World) -> None:
        self._channel, self._owners = path.channel, world.owners

    def begin(self, request: Request, elements: int, dtype: np.dtype[Any]) -> None:
        self._request = request

    def carry(self, exchange: Exchange, states: States) -> None:
        pending = self.post(exchange, states, ())
        for copy in exchange.copies:
            for sender, receiver in copy.pairs():
                if sender in states and receiver in states:
                    states[receiver].view(copy.target)[...] = states[sender].view(copy.source)
        self.wait(pending)

    def post(self, exchange: Exchange, states: States, near: Collection[int]) -> list[Any]:
        """Start receives and sends of copies to or from other ranks, except between replicas in ``near``."""
        channel = self._channel
        pairs = [
            (copy, sender, receiver)
            for copy in exchange.copies
            for sender, receiver in copy.pairs()
            if (sender in states) != (receiver in states) and not (sender in near and receiver in near)
        ]
        pending = [
            channel.receive(self._owners[sender], states[receiver].view(copy.target))
            for copy, sender, receiver in pairs
            if receiver in states
        ]
        return pending + [
            channel.send(self._owners[receiver], states[sender].view(copy.source))
            for copy, sender, receiver in pairs
            if sender in states
        ]

    def wait(self, pending: list[Any]) -> None:
        """Wait for the receives and sends that ``post`` started."""
        self._channel.wait(self._request, pending)

    def end(self) -> None:
        """Do nothing: ``wait`` completed all messages."""


class _HierarchicalTransport:
    """Carries slices within this host through memory, and between hosts by messages, at the same time."""

    def __init__(self, path: HierarchicalPath, world: World) -> None:
        self._memory = _MemoryTransport(path.memory, path.replicas, world.local)
        self._messages = _MessageTransport(path.everyone, world)

    def begin(self, request: Request, elements: int, dtype: np.dtype[Any]) -> None:
        self._memory.begin(request, elements, dtype)
        self._messages.begin(request, elements, dtype)

    def carry(self, exchange: Exchange, states: States) -> None:
        pending = self._messages.post(exchange, states, self._memory.here)
        self._memory.put(exchange, states)
        self._memory.take(exchange, states)
        self._messages.wait(pending)

    def end(self) -> None:
        self._memory.end()


def _places(exchange: Exchange) -> Iterator[tuple[CrossReplicaCopy, int]]:
    """Each copy and its first element in a slot, where copies are packed one after the other."""
    start = 0
    for copy in exchange.copies:
        yield copy, start
        start += copy.source.elements
