"""Multi-replica strategy: the PopDist strategy by its name in early releases."""

from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["IPUMultiReplicaStrategyV1"]

IPUMultiReplicaStrategyV1 = PopDistStrategy
