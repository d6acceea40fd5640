"""PopDist: ``popdist.tensorflow``, the configuration of one of several instances."""

from __future__ import annotations

from typing import Any

import popdist_py

__all__ = ["set_ipu_config"]


def set_ipu_config(config: Any, ipus_per_replica: int | None = None, configure_device: bool = True) -> Any:
    """Set the number of IPUs and the index of this instance in an IPUConfig; return it.

    The number of IPUs is that of local replicas times ``ipus_per_replica``, by default as set for the launcher.
    """
    popdist_py.init()
    per_replica = ipus_per_replica or popdist_py.getNumIpusPerReplica()
    if per_replica < 1 or per_replica & (per_replica - 1):
        raise ValueError(f"ipus_per_replica is {per_replica}; use a power of two")
    config.auto_select_ipus = popdist_py.getNumLocalReplicas() * per_replica
    shared = config.experimental.multi_replica_distribution
    shared.process_count, shared.process_index = popdist_py.getNumInstances(), popdist_py.getInstanceIndex()
    if configure_device:
        config.configure_ipu_system()
    return config
