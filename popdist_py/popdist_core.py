"""PopDist's functions: the identity of this instance, and collective calls of all instances.

Names and meaning follow the PopDist and PopRun user guide. Without poprun-py, a program is a job of one instance with
one replica.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from popdist_py.environment import Environment, is_set
from popdist_py.errors import BackendError, LayoutError
from popdist_py.layout import device_size

if TYPE_CHECKING:
    from popdist_py.backend import Backend

T = TypeVar("T")

_SMALLEST_SYSTEM = 16  # IPUs of a Pod16


class _Process:
    """This process as a member of its job.

    One per process: PopDist's functions take no handle, and MPI can be started only once in a process.
    """

    def __init__(self) -> None:
        self.backend: Backend | None = None  # None before init()


process = _Process()


def isPopdistEnvSet() -> bool:
    """Whether poprun-py started this process (whether ``POPDIST_NUM_TOTAL_REPLICAS`` is set)."""
    return is_set(os.environ)


def getInstanceIndex() -> int:
    """Return the index of this instance among all instances of the job; 0 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed, or if the instances differ in their
    number of replicas, since the index does not follow from the variables then.
    """
    return _environment().instance_index


def getNumInstances() -> int:
    """Return the number of instances of the job; 1 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed, or if the instances differ in their
    number of replicas, since the count does not follow from the variables then.
    """
    return _environment().num_instances


def getNumTotalReplicas() -> int:
    """Return the number of replicas of the whole job; 1 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    return _environment().num_total_replicas


def getNumLocalReplicas() -> int:
    """Return the number of replicas of this instance; 1 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    return _environment().num_local_replicas


def getNumIpusPerReplica() -> int:
    """Return the number of IPUs of one replica (--ipus-per-replica); 1 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    return _environment().num_ipus_per_replica


def getReplicaIndexOffset() -> int:
    """Return the global index of the first replica of this instance; 0 without poprun-py.

    The replicas of an instance have consecutive global indices. Raises PopdistEnvironmentError if the POPDIST_*
    variables are malformed.
    """
    return _environment().replica_index_offset


def getLocalInstanceIndex() -> int:
    """Return the index of this instance among those on its host; 0 without poprun-py.

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    return _environment().local_instance_index


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Return the id of the device that holds the IPUs of this instance.

    With ``ipusPerReplica`` 0, the number that was passed to the launcher is used. Device ids are numbered by the
    number of IPUs: on a Pod16, devices 0 to 15 have one IPU, 16 to 23 two, 24 to 27 four, 28 and 29 eight, and 30 has
    all. If the IPUs of the instance are not a power of two, the next larger device holds them. Raises LayoutError for
    no IPUs, PopdistEnvironmentError as ``getInstanceIndex`` does.
    """
    environment = _environment()
    per_replica = ipusPerReplica or environment.num_ipus_per_replica
    if per_replica < 0:
        raise LayoutError(f"ipusPerReplica = {per_replica}; use at least 1, or 0 for that of the launcher")
    width = device_size(per_replica * environment.num_local_replicas)
    total = environment.num_total_replicas // environment.num_local_replicas * width
    system = max(_SMALLEST_SYSTEM, device_size(total))
    narrower = sum(system >> level for level in range(width.bit_length() - 1))
    return narrower + environment.instance_index


def checkNumIpusPerReplica(n: int) -> bool:
    """Whether ``n`` is the number of IPUs per replica passed to the launcher (1 without poprun-py).

    Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    return n == getNumIpusPerReplica()


def init() -> None:
    """Join the other instances of the job; further calls do nothing.

    Every instance must call it, before its first collective and before it creates a session. It starts MPI if the
    job has several instances; a single instance needs no MPI. Raises BackendError if the MPI library of this process
    does not belong to the launcher, or if MPI has been finalised already.
    """
    if not isBackendInitialized():
        initializeBackend()


def isBackendInitialized() -> bool:
    """Whether this process has called ``init`` or ``initializeBackend``, and not ``finalizeBackend`` since."""
    return process.backend is not None


def initializeBackend() -> None:
    """Join the other instances as ``init`` does; raise BackendError if that was done before.

    Every instance must call it. Raises BackendError for the same reasons as ``init``, too.
    """
    if isBackendInitialized():
        raise BackendError("initializeBackend() was called twice; call popdist_py.init(), which may be repeated")
    from popdist_py.backend import Backend

    process.backend = Backend(_environment())


def finalizeBackend() -> None:
    """Leave the job: wait for the other instances to do the same, then finalise MPI.

    It is done automatically when the program ends, and cannot be followed by another ``init`` in a job of several
    instances. Every instance must call it. Raises BackendError before ``init``.
    """
    host_backend().finalise()
    process.backend = None


def host_backend() -> Backend:
    """Return the backend that joins the instances (``popdist_py.backend.Backend``).

    Raises BackendError before ``init``.
    """
    if process.backend is None:
        raise BackendError("this instance is not connected to the others; call popdist_py.init() first")
    return process.backend


def synchronize() -> None:
    """Wait until every instance has called it; within ``execute_on_instances``, until every selected instance has.

    Raises BackendError before ``init``, if another instance makes a different call or has ended, or after half an
    hour of waiting.
    """
    host_backend().barrier()


def execute_on_instances(instances: set[int], func: Callable[..., T], *args: object, **kwargs: object) -> T | None:
    """Call ``func(*args, **kwargs)`` on the instances with the indices ``instances`` only.

    Returns its result there, and None on the other instances, which do not wait. Collectives and ``synchronize``
    inside ``func`` include the selected instances only, all of which must make the same calls. Raises LayoutError if
    ``instances`` is not a set, is empty or holds an index that does not exist.
    """
    if not isinstance(instances, (set, frozenset)):
        raise LayoutError(f"execute_on_instances cannot select {instances!r}; give a set, such as {{0}}")
    unknown = sorted(i for i in instances if not 0 <= i < getNumInstances())
    if unknown or not instances:
        raise LayoutError(
            f"execute_on_instances needs existing instances, found {unknown or 'none'}; instances are "
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
