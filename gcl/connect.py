"""Connect: creates the communicator of a process: finds which processes share memory and chooses the data path."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgpack

import popdist_py
from gcl.communicator import Communicator
from gcl.core.argument_checks import check_seconds, check_whole, is_whole
from gcl.core.data_path import DataPath
from gcl.core.groups import Group
from gcl.core.request import Request
from gcl.core.traced_dispatch import dispatch
from gcl.core.world import World
from gcl.decision_log import Logged, listens, logger_of
from gcl.errors import ArgumentError, CollectiveTimeout
from gcl.fabric.fabric import Fabric
from gcl.literal.literal_path import LiteralCommunicator, LiteralPath, LiteralShards, chosen, default_fabric
from gcl.scheduling.methods.method import Method, method_chain
from gcl.scheduling.options import SYNCLESS_WARNING, UNUSED_VARIABLES, Options
from gcl.scheduling.schedule import Schedule
from gcl.transport.memory import inprocess
from gcl.transport.memory.segment import DEFAULT_BYTES
from gcl.transport.paths.memory_path import MemoryPath
from gcl.transport.paths.path_selection import HostPlacement, select_path
from gcl.transport.rendezvous.process_liveness import Process
from popdist_py.messages.suggestion import did_you_mean

#: The transport, if the program passes none.
TRANSPORT_VARIABLE = "GCL_TRANSPORT"
#: The options of collectives, and the fabric on which their methods run.
Way = tuple[Options, Fabric]
_TRANSPORTS = ("auto", "inprocess", "shared_memory", "mpi")
#: The most replicas, as many as the largest clusters have IPUs; a bound, because tables of all replicas are kept.
_MOST_REPLICAS = 65536
#: Least seconds to wait for instances to connect: they start at different times.
_LEAST_TO_CONNECT = 5.0


def connect(
    *,
    local_replicas: int | None = None,
    global_offset: int | None = None,
    global_replicas: int | None = None,
    group: Group | None = None,
    transport: str | None = None,
    timeout: float = 300.0,
    segment_bytes: int = DEFAULT_BYTES,
    host: str | None = None,
    method: str | Sequence[str] | None = None,
    fabric: Fabric | None = None,
) -> Communicator:
    """Join ``local_replicas`` replicas of this process, the first being ``global_offset``, to all others.

    By default they are the replicas of this instance in its job (outside of a job: a single replica). If only some of
    the three are given, the others are 1, 0 and ``local_replicas``. Every instance must call ``connect``, with the
    same ``global_replicas``, ``group`` (default: all), ``transport`` and ``method``.

    ``transport`` (default: GCL_TRANSPORT of the environment, else "auto") selects how bytes move between processes:
    "inprocess", "shared_memory", "mpi", or "auto": shared memory between ranks of one host, MPI between hosts.

    ``method`` (default: that of GCL_OPTIONS, else "auto") selects the algorithm. Any method but
    "auto", or a chain of methods ("clockwise_ring,meet_in_middle_ring", or a list), runs its step programs on
    ``fabric`` (default: a mesh of single-IPU replicas). "auto" runs no step program: every rank reduces its slice
    directly from the tensors of its peers. It is not GCL's choice by size: for that pass "auto,auto", or set
    GCL_REAL_COLLECTIVES=1 and pass no method.

    ``timeout`` (seconds) bounds every wait, except that connecting waits at least 5 s. ``segment_bytes`` is the
    address space reserved for tensors, not the memory in use. ``host`` (default: detected) names the host of this
    instance; ranks with different names exchange messages, so that several hosts can be simulated on one machine.

    Raises ArgumentError if the replicas of all instances do not form one job, CollectiveTimeout naming the replicas
    of instances that do not connect, TransportError if the transport does not work here, BackendError (popdist_py)
    if other instances exist and popdist_py.init() was not called.
    """
    local_replicas, global_offset, total = _replicas(local_replicas, global_offset, global_replicas)
    if not isinstance(host, str | None):
        raise ArgumentError(f"host={host!r} is not valid; give the host's name")
    _check_waits_and_memory(timeout, segment_bytes)
    segment_bytes = int(segment_bytes)  # msgpack does not encode numpy's integers
    group = _checked(group, total)
    wanted = _transport(transport)
    way = _way(method, fabric, total)
    if total == local_replicas and wanted != "mpi":
        world = World.joined(0, [(local_replicas, global_offset, total)])
        path = MemoryPath(inprocess.domains(segment_bytes=segment_bytes)[0], world, group, timeout)
        return _open(path, world, group, way)
    choice = f"transport {wanted!r}, groups of {group.size} with stride {group.stride}, and {_described(way)}"
    claim = local_replicas, global_offset, total, choice, host or host_name(), process_namespace(), Process.own()
    _meet(popdist_py.host_backend().size, local_replicas, total, timeout)
    placement = _placement(claim, wanted)
    return _open(select_path(wanted, placement, group, timeout, segment_bytes), placement.world, group, way)


def _placement(claim: tuple[Any, ...], transport: str) -> HostPlacement:
    """Exchange the claims of all instances: which replicas each has, its choice, and where it runs.

    Raise ArgumentError if the choices differ, or if ``transport`` does not reach all of them.
    """
    claims = [msgpack.unpackb(reply) for reply in popdist_py.host_backend().all_gather(msgpack.packb(claim))]
    world = World.joined(popdist_py.host_backend().rank, [(claim[0], claim[1], claim[2]) for claim in claims])
    _check_equal([claim[3] for claim in claims])
    if transport == "inprocess":
        raise ArgumentError(f"transport 'inprocess' works in one process, but {world.ranks} processes take part")
    hosts, machines, processes = zip(*(claim[4:] for claim in claims), strict=True)
    placement = HostPlacement(world, hosts, machines, tuple(Process(*process) for process in processes))
    if transport == "shared_memory" and len(placement.ranks_of) > 1:
        raise ArgumentError(
            "transport 'shared_memory' works within a host, but the instances are on several hosts; use mpi"
        )
    return placement


def _meet(instances: int, local: int, total: int, timeout: float) -> None:
    """Wait for all instances to connect; raise CollectiveTimeout naming the missing ones."""
    if instances == 1:
        return
    from gcl.transport.mpi.mpi_messages import missing_ranks  # starts MPI

    seconds = max(timeout, _LEAST_TO_CONNECT)
    # late instances learn in the second wait that the others gave up
    if missing := missing_ranks(seconds) or missing_ranks(seconds):
        uniform = World(0, (local,) * instances) if local * instances == total else None
        names = ", ".join(uniform.describe(rank) if uniform else f"instance {rank}" for rank in missing)
        raise CollectiveTimeout(
            f"connect waited {seconds:g} s for {names}; every instance must call it: check what they are doing, or "
            "raise timeout"
        )


def connect_threads(
    counts: tuple[int, ...],
    *,
    group: Group | None = None,
    timeout: float = 300.0,
    segment_bytes: int = DEFAULT_BYTES,
    method: str | Sequence[str] | None = None,
    fabric: Fabric | None = None,
) -> list[Communicator]:
    """Communicators for ``len(counts)`` threads of this process, thread i with ``counts[i]`` local replicas."""
    if not isinstance(counts, tuple | list) or not all(is_whole(count, 1) for count in counts):
        raise ArgumentError(
            f"counts={counts!r} is not valid; give each thread's replicas, whole numbers of at least 1, as in (1, 2)"
        )
    _check_waits_and_memory(timeout, segment_bytes)
    counts = tuple(map(int, counts))
    group = _checked(group, sum(counts))
    worlds = [World(rank, counts) for rank in range(len(counts))]
    way = _way(method, fabric, sum(counts))
    domains = inprocess.domains(len(counts), segment_bytes=segment_bytes)
    return [
        _communicator(MemoryPath(domain, world, group, timeout), world, group, way)
        for domain, world in zip(domains, worlds, strict=True)
    ]


def _replicas(local: int | None, offset: int | None, total: int | None) -> tuple[int, int, int]:
    """(local replicas, first of them, all replicas): those of the job if the program passes none."""
    if (local, offset, total) == (None, None, None):
        local = popdist_py.getNumLocalReplicas()
        offset, total = popdist_py.getReplicaIndexOffset(), popdist_py.getNumTotalReplicas()
    local = 1 if local is None else local
    offset = 0 if offset is None else offset
    total = local if total is None else total
    check_whole(local, "local_replicas", 1)
    check_whole(offset, "global_offset")
    check_whole(total, "global_replicas", 1)
    if total > _MOST_REPLICAS:
        raise ArgumentError(f"{total} replicas are too many; a communicator has at most {_MOST_REPLICAS}")
    return int(local), int(offset), int(total)


def _check_waits_and_memory(timeout: float, segment_bytes: int) -> None:
    check_seconds(timeout, "timeout")
    check_whole(segment_bytes, "segment_bytes", 1)


def _way(method: str | Sequence[str] | None, fabric: Fabric | None, replicas: int) -> Way:
    options = Options.from_environ(os.environ)  # read even if a method is given, to report mistakes
    if not isinstance(fabric, Fabric | None):
        raise ArgumentError(f"fabric={fabric!r} is not valid; give a gcl.Fabric, such as gcl.Fabric({replicas})")
    if fabric is not None and fabric.replicas != replicas:
        raise ArgumentError(f"the fabric has {fabric.replicas} replicas, but the communicator has {replicas}")
    if method is not None:
        options = replace(options, method=method_chain(method))
    elif options.real_collectives and options.method == (Method.AUTO,):
        options = replace(options, method=(Method.AUTO, Method.AUTO))
    if options.use_syncless_collectives:
        warnings.warn(SYNCLESS_WARNING, FutureWarning, stacklevel=3)
    _warn_of_unused(options)
    return options, fabric or default_fabric(replicas)


def _warn_of_unused(options: Options) -> None:
    if options.use_replicated_implementation:
        warnings.warn(
            "useReplicatedImplementation in GCL_OPTIONS has no effect: every tensor belongs to a replicated graph",
            stacklevel=4,
        )
    for name in UNUSED_VARIABLES:
        if os.environ.get(name):
            warnings.warn(f"{name} has no effect: no compiled code of tiles is loaded", stacklevel=4)


def _described(way: Way) -> str:
    options, fabric = way
    settings = str(replace(options, log_level=None)).replace("\n", ", ")
    return f"method {','.join(options.method)}" + ("" if options.is_direct else f" on {fabric} with {settings}")


def _communicator(path: DataPath, world: World, group: Group, way: Way) -> Communicator:
    logger = logger_of(way[0])
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            "rank %d of %d: %s of %d, groups of %d with stride %d, transport %s, %s on %s",
            *(world.rank, world.ranks, world.describe(world.rank), world.replicas),
            *(group.size, group.stride, path.name, _described(way), way[1]),
        )
    return _by_method(path, world, group, way, logger)


def _by_method(path: DataPath, world: World, group: Group, way: Way, logger: logging.Logger) -> Communicator:
    """A communicator on ``path``, which makes another one for each method that a single call names."""
    options, fabric = way

    def another(method: str) -> Communicator:
        return _by_method(path, world, group, (replace(options, method=method_chain(method)), fabric), logger)

    if options.is_direct:
        logged = _heard(path, world, logger, partial(chosen, fabric, group))
        return Communicator(dispatch(logged, world, group), another)
    literal = LiteralPath(path, world, group, fabric, options)
    logged = _heard(literal, world, logger, literal.planned)
    shards = LiteralShards(literal, group)
    return LiteralCommunicator(dispatch(logged, world, group, shards, literal.method_of), another, literal)


def _heard(
    path: DataPath, world: World, logger: logging.Logger, planned: Callable[[Request], Schedule | None]
) -> DataPath:
    """``path``, wrapped to log its calls if ``logger`` is enabled."""
    return Logged(path, world.rank, logger, planned) if listens(logger) else path


def _open(path: DataPath, world: World, group: Group, way: Way) -> Communicator:
    communicator = _communicator(path, world, group, way)
    atexit.register(_leave, weakref.ref(path), os.getpid())
    return communicator


def _leave(path: Any, process: int) -> None:
    """At exit, close the path, so that no rank waits for this process until its time-out."""
    target = path()
    if target is not None and os.getpid() == process:  # not in a forked child
        target.close()


def _check_equal(choices: list[str]) -> None:
    for rank, choice in enumerate(choices):
        if choice != choices[0]:
            raise ArgumentError(
                f"rank {rank} connects with {choice}, rank 0 with {choices[0]}; every rank must pass the same"
            )


def _checked(group: Group | None, replicas: int) -> Group:
    if not isinstance(group, Group | None):
        raise ArgumentError(f"group={group!r} is not valid; give a gcl.Group, such as gcl.Group.all({replicas})")
    if group is not None and group.replicas != replicas:
        raise ArgumentError(f"the group is over {group.replicas} replicas, but the communicator has {replicas}")
    return group or Group.all(replicas)


def _transport(wanted: str | None) -> str:
    name = wanted or os.environ.get(TRANSPORT_VARIABLE) or "auto"
    if name not in _TRANSPORTS:
        raise ArgumentError(
            f"transport {name!r} is unknown; use {', '.join(_TRANSPORTS)}{did_you_mean(name, _TRANSPORTS)}"
        )
    return name


def host_name() -> str:
    """Identity of the memory domain: name of the host, and boot id of the kernel."""
    return f"{socket.gethostname()} {_boot()}"


def process_namespace() -> str:
    """Identity of the process-id namespace: boot id of the kernel, and inode of the namespace."""
    try:
        return f"{_boot()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return host_name()


def _boot() -> str:
    """The boot id of the running kernel, "" if it cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
