"""popart: configure a PopART session from what the launcher said."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from popdist_py.environment import OFFLINE_MODE
from popdist_py.errors import LayoutError
from popdist_py.popdist_core import (
    checkNumIpusPerReplica,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
)

__all__ = ["configureSessionOptions", "getDevice"]


def configureSessionOptions(opts: Any) -> None:
    """Set the replication of ``opts`` (SessionOptions): local replicas, and this instance's place among all.

    One local replica leaves ``enableReplicatedGraphs`` off, because PopART rejects it in distributed mode.
    """
    local, total = getNumLocalReplicas(), getNumTotalReplicas()
    opts.enableReplicatedGraphs = local > 1
    opts.replicatedGraphCount = local
    opts.enableDistributedReplicatedGraphs = total > local
    opts.globalReplicaOffset = getReplicaIndexOffset()
    opts.globalReplicationFactor = total


def getDevice(ipus_per_replica: int | None = None, connectionType: Any = None) -> Any:
    """A device with the IPUs of this instance's replicas; default width: what the launcher was told.

    In offline mode it is one that compiles and never runs, whatever the connection type.
    """
    width = getNumIpusPerReplica() if ipus_per_replica is None else ipus_per_replica
    if not checkNumIpusPerReplica(width):
        raise LayoutError(
            f"{width} IPUs per replica were asked for, but the launcher was told {getNumIpusPerReplica()}; "
            f"start with poprun-py --ipus-per-replica {width}"
        )
    popart = import_module("ipu_emu.popart")  # at call time: this package is below the emulator
    manager, ipus = popart.DeviceManager(), width * getNumLocalReplicas()
    if os.environ.get(OFFLINE_MODE) == "1":
        return manager.createOfflineIPUDevice({"numIPUs": ipus})
    if connectionType is None:
        connectionType = popart.DeviceConnectionType.OnDemand
    return manager.acquireAvailableDevice(ipus, connectionType=connectionType)
