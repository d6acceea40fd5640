"""popdist.poptorch: Options of this instance of a job that poprun-py started."""

from __future__ import annotations

from typing import Any

import popdist_py
from ipu_emu.poptorch.options.options import Options as _Options


class Options(_Options):
    """PopTorch's options with the replicas of this instance, and its place among the instances."""

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        super().__init__()
        if ipus_per_replica is not None and not popdist_py.checkNumIpusPerReplica(ipus_per_replica):
            raise RuntimeError(
                f"The model uses {ipus_per_replica} IPUs per replica, but poprun-py was started with "
                f"{popdist_py.getNumIpusPerReplica()}; start it with --ipus-per-replica {ipus_per_replica}"
            )
        super().replicationFactor(popdist_py.getNumLocalReplicas())
        self._distributed.configureProcessId(popdist_py.getInstanceIndex(), popdist_py.getNumInstances())
        for name in ("disable", "setEnvVarNames", "configureProcessId"):
            object.__setattr__(self._distributed, name, _Blocked(f"Distributed.{name}"))

    def replicationFactor(self, replication_factor: int) -> Any:
        """Raise an error: the launcher sets the replicas."""
        return _Blocked("replicationFactor")()

    def useIpuId(self, ipu_id: int) -> Any:
        """Raise an error: the launcher chooses the device."""
        return _Blocked("useIpuId")()


class _Blocked:
    """A setter that must not be called; a class, so that options can be copied and pickled."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Cannot call `{self._name}` with popdist.poptorch.Options")
