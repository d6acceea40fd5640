"""Multi-worker strategy: the strategy of early releases, replaced by PopDistStrategy."""

from __future__ import annotations

import warnings
from typing import Any

from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["IPUMultiWorkerStrategyV1"]


class IPUMultiWorkerStrategyV1(PopDistStrategy):
    """Trains on the replicas of all instances; the cluster is that of the launcher."""

    def __init__(
        self, cluster_resolver: Any = None, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        warnings.warn("IPUMultiWorkerStrategyV1 is deprecated. Use PopDistStrategy instead.", stacklevel=2)
        super().__init__(ipu_device)
