"""popdist_core: PopDist's calls: who am I, how many are we, do this together.

Names and meaning follow the PopDist and PopRun user guide; host collectives on numpy arrays are an extension.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from popdist_py.environment import Environment, is_set
from popdist_py.errors import BackendError, LayoutError

__all__ = [
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "finalizeBackend",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "host_backend",
    "init",
    "initializeBackend",
    "isBackendInitialized",
    "isPopdistEnvSet",
    "synchronize",
]

T = TypeVar("T")

#: The process's one back end: PopDist's API is a process-wide one. Empty before init().
_backend: list[Any] = []

_SMALLEST_SYSTEM = 16  # IPUs of a Pod16


def isPopdistEnvSet() -> bool:
    """Say whether poprun-py started this process."""
    return is_set(os.environ)


def getInstanceIndex() -> int:
    """Index of this instance, 0 without poprun-py; needs uniform replicas per instance."""
    return _environment().instance_index


def getNumInstances() -> int:
    """Number of instances, 1 without poprun-py; needs uniform replicas per instance."""
    return _environment().num_instances


def getNumTotalReplicas() -> int:
    """Replicas of all instances, 1 without poprun-py."""
    return _environment().num_total_replicas


def getNumLocalReplicas() -> int:
    """Replicas of this instance, 1 without poprun-py."""
    return _environment().num_local_replicas


def getNumIpusPerReplica() -> int:
    """IPUs that one replica uses, 1 without poprun-py."""
    return _environment().num_ipus_per_replica


def getReplicaIndexOffset() -> int:
    """First global replica of this instance, 0 without poprun-py."""
    return _environment().replica_index_offset


def getLocalInstanceIndex() -> int:
    """Index of this instance on its host, 0 without poprun-py."""
    return _environment().local_instance_index


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Id of the device with this instance's IPUs; 0 means the launcher's IPUs per replica.

    Devices are numbered by width: on a Pod16, 0 to 15 have one IPU, 16 to 23 two, 24 to 27 four, 28 and 29 eight,
    30 all. Raises LayoutError if the IPUs of an instance are not a power of two.
    """
    environment = _environment()
    per_replica = ipusPerReplica or environment.num_ipus_per_replica
    width = per_replica * environment.num_local_replicas
    if width < 1 or width & (width - 1):
        raise LayoutError(
            f"a device with {width} IPUs ({environment.num_local_replicas} local replicas of {per_replica} IPUs) was "
            "asked for; the number of IPUs must be a power of two"
        )
    total = environment.num_total_replicas * per_replica
    system = max(_SMALLEST_SYSTEM, 1 << (total - 1).bit_length())
    narrower = sum(system >> level for level in range(width.bit_length() - 1))
    return narrower + environment.instance_index


def checkNumIpusPerReplica(n: int) -> bool:
    """Say whether ``n`` is what the launcher was told (1 without poprun-py)."""
    return n == getNumIpusPerReplica()


def init() -> None:
    """Join the other instances; every instance must call it before it creates a session. Again is harmless."""
    if not isBackendInitialized():
        initializeBackend()


def isBackendInitialized() -> bool:
    """Say whether ``init`` was called."""
    return bool(_backend)


def initializeBackend() -> None:
    """As ``init``, but an error if it was done before."""
    if isBackendInitialized():
        raise BackendError("initializeBackend() was called twice; call popdist_py.init(), which may be repeated")
    from popdist_py.backend import Backend

    _backend.append(Backend(_environment()))


def finalizeBackend() -> None:
    """Leave the other instances; also done at exit."""
    host_backend().finalise()
    _backend.clear()


def host_backend() -> Any:
    """The back end (popdist_py.backend.Backend); raise BackendError before ``init``."""
    if not _backend:
        raise BackendError(
            "a collective was asked for before the instances were joined; call popdist_py.init() first"
        )
    return _backend[0]


def synchronize() -> None:
    """Wait until every instance is here (inside execute_on_instances: every selected instance)."""
    host_backend().barrier()


def execute_on_instances(instances: set[int], func: Callable[..., T], *args: object, **kwargs: object) -> T | None:
    """Run ``func(*args, **kwargs)`` only on ``instances``, and return its result there, None elsewhere.

    Collectives and synchronisation inside span only those instances. It does not wait for the others.
    """
    if not isinstance(instances, (set, frozenset)):
        raise LayoutError(f"execute_on_instances on {instances!r} was asked for; give a set, such as {{0}}")
    unknown = sorted(i for i in instances if not 0 <= i < getNumInstances())
    if unknown or not instances:
        raise LayoutError(
            f"execute_on_instances on {unknown or 'no instance'} was asked for; instances are "
            f"0 to {getNumInstances() - 1}"
        )
    if getInstanceIndex() not in instances:
        return None
    if not isBackendInitialized():
        return func(*args, **kwargs)
    with host_backend().restricted_to(set(instances)):
        return func(*args, **kwargs)


def _environment() -> Environment:
    return Environment.from_environ(os.environ)
