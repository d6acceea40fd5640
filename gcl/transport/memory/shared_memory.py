"""Shared memory: a memory domain whose ranks are processes of one host.

Memory is anonymous (memfd): it has no name in /dev/shm, so nothing can be left behind, however a process ends, and a
container's small /dev/shm is no limit. Peers map it through /proc/<pid>/fd. On another host, or in another container,
a process id is that of another process, whose descriptor may be any file: so each memory has a random name (of which
/proc alone knows), and nothing else is opened or written to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

import msgpack
import numpy as np

from gcl.errors import TransportError
from gcl.transport.memory.memory_domain import MemoryDomain, control_bytes, core_cache_bytes
from gcl.transport.memory.process_vm import can_access_process
from gcl.transport.memory.segment import DEFAULT_BYTES, Segment, map_memory
from gcl.transport.rendezvous.process_liveness import Process


class _Peer(NamedTuple):
    """The description of a process for its peers."""

    pid: int
    started: int
    segment: int  # file descriptor of its memory
    control: int  # that of the memory of all; -1 except on rank 0
    nbytes: int
    core_cache: int
    cores: list[int]
    target: int  # address of a word that the others try to write to
    name: str

    @property
    def process(self) -> Process:
        return Process(self.pid, self.started)


def domain(
    *,
    rank: int,
    ranks: int,
    all_gather: Callable[[bytes], list[bytes]],
    segment_bytes: int = DEFAULT_BYTES,
    communicators: WeakSet[Any] | None = None,
) -> MemoryDomain:
    """Map the segments of ``ranks`` processes, all of which must call this; TransportError on all if one fails.

    ``all_gather`` exchanges small byte strings between them, in rank order. ``communicators``: those of this process
    (``MemoryDomain``).
    """
    own = os.urandom(8).hex()
    segment = _memory(f"gcl-segment-{own}", segment_bytes)
    control = _memory(f"gcl-control-{own}", control_bytes(ranks)) if rank == 0 else -1
    cores = sorted(os.sched_getaffinity(0))
    target = np.zeros(1, np.int64)  # peers test whether they can write to it
    me = Process.own()
    hello = _Peer(
        me.pid, me.started, segment, control, segment_bytes, core_cache_bytes(), cores, target.ctypes.data, own
    )
    peers = [_Peer(*msgpack.unpackb(reply)) for reply in all_gather(msgpack.packb(hello))]
    first = peers[0]
    try:
        control_map = _map(0, first.pid, first.control, f"gcl-control-{first.name}", control_bytes(ranks))
        maps = [
            _map(number, peer.pid, peer.segment, f"gcl-segment-{peer.name}", peer.nbytes)
            for number, peer in enumerate(peers)
        ]
        fault = ""
        reaches = all(can_access_process(peer.pid, peer.target) for peer in peers)
    except (OSError, TransportError) as error:
        fault = str(error)
        reaches = False
    verdicts = [msgpack.unpackb(reply) for reply in all_gather(msgpack.packb((fault, reaches)))]
    for descriptor in (segment, control):
        if descriptor >= 0:
            os.close(descriptor)
    for peer, (text, _) in enumerate(verdicts):
        if text:
            raise TransportError(f"rank {peer} cannot map its peers' memory: {text}; use transport='mpi'")
    return MemoryDomain(
        rank=rank,
        control=control_map,
        memories=maps,
        arenas=[memory.ctypes.data for memory in maps],
        segment=Segment(maps[rank]),
        alive=lambda number: peers[number].process.alive(),
        close=maps.clear,
        name="shared_memory",
        uses_process_vm=all(reached for _, reached in verdicts),
        cores=len({core for peer in peers for core in peer.cores}),
        smallest=min(peer.nbytes for peer in peers),
        core_cache=min(peer.core_cache for peer in peers),
        processes=tuple(peer.process for peer in peers),
        communicators=communicators,
    )


def _memory(name: str, nbytes: int) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(descriptor, nbytes)
    return descriptor


def _map(peer: int, pid: int, descriptor: int, name: str, nbytes: int) -> np.ndarray:
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        target = os.readlink(path)
    except FileNotFoundError:
        target = ""
    if target != f"/memfd:{name} (deleted)":
        raise TransportError(f"rank {peer}, which is process {pid}, is on another host or in another container")
    opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return map_memory(opened, nbytes)
    finally:
        os.close(opened)
