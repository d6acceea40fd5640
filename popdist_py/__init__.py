"""popdist_py: the identity of an instance in its job (PopDist's API), and host collectives between the instances."""

from popdist_py.collectives import allGather, allReduce, broadcast
from popdist_py.errors import BackendError, LayoutError, PopdistEnvironmentError, PopdistError
from popdist_py.layout import Layout
from popdist_py.popdist_core import (
    checkNumIpusPerReplica,
    execute_on_instances,
    finalizeBackend,
    getDeviceId,
    getInstanceIndex,
    getLocalInstanceIndex,
    getNumInstances,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
    host_backend,
    init,
    initializeBackend,
    isBackendInitialized,
    isPopdistEnvSet,
    synchronize,
)
from popdist_py.progress import report

#: The exception type under the name that PopDist gives it.
popdist_error = PopdistError

__all__ = [
    "BackendError", "Layout", "LayoutError", "PopdistEnvironmentError", "PopdistError", "allGather", "allReduce",
    "broadcast", "checkNumIpusPerReplica", "execute_on_instances", "finalizeBackend", "getDeviceId",
    "getInstanceIndex", "getLocalInstanceIndex", "getNumInstances", "getNumIpusPerReplica", "getNumLocalReplicas",
    "getNumTotalReplicas", "getReplicaIndexOffset", "host_backend", "init", "initializeBackend",
    "isBackendInitialized", "isPopdistEnvSet", "popdist_error", "report", "synchronize",
]  # fmt: skip
