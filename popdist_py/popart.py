"""PopART configuration: session options and the device of this instance, from the POPDIST_* variables."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from popdist_py.environment import OFFLINE_MODE
from popdist_py.errors import LayoutError
from popdist_py.layout import device_size
from popdist_py.popdist_core import (
    checkNumIpusPerReplica,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
)

__all__ = ["configureSessionOptions", "getDevice"]


def configureSessionOptions(opts: Any) -> None:
    """Set the replication options of ``opts`` (a SessionOptions) for this instance.

    Sets ``replicatedGraphCount`` (local replicas), ``globalReplicationFactor`` (all replicas),
    ``globalReplicaOffset`` and the two switches. With one local replica ``enableReplicatedGraphs`` stays off, because
    PopART rejects it in distributed mode. Raises PopdistEnvironmentError if the POPDIST_* variables are malformed.
    """
    local, total = getNumLocalReplicas(), getNumTotalReplicas()
    opts.enableReplicatedGraphs = local > 1
    opts.replicatedGraphCount = local
    opts.enableDistributedReplicatedGraphs = total > local
    opts.globalReplicaOffset = getReplicaIndexOffset()
    opts.globalReplicationFactor = total


def getDevice(ipus_per_replica: int | None = None, connectionType: Any = None) -> Any:
    """Return a device (popart.DeviceInfo) with the IPUs of all replicas of this instance, a power of two of them.

    ``ipus_per_replica`` is by default what the launcher was given, ``connectionType`` is OnDemand. With
    --offline-mode the device is for compilation only, whatever the connection type. Raises LayoutError if
    ``ipus_per_replica`` differs from what the launcher was given, and what ``DeviceManager.acquireAvailableDevice``
    raises.
    """
    width = getNumIpusPerReplica() if ipus_per_replica is None else ipus_per_replica
    if not checkNumIpusPerReplica(width):
        raise LayoutError(
            f"a device has {width} IPUs per replica, but poprun-py was started with {getNumIpusPerReplica()}; "
            f"start with poprun-py --ipus-per-replica {width}"
        )
    popart = import_module("ipu_emu.popart")  # at call time: this package is below the emulator
    manager, ipus = popart.DeviceManager(), width * getNumLocalReplicas()
    if os.environ.get(OFFLINE_MODE) == "1":
        return manager.createOfflineIPUDevice({"numIPUs": ipus})
    if connectionType is None:
        connectionType = popart.DeviceConnectionType.OnDemand
    device = manager.acquireAvailableDevice(device_size(ipus), connectionType=connectionType)
    device.usedIpus = ipus
    return device
