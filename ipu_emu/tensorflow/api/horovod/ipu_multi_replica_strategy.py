"""Multi-replica strategy: the name of the PopDist strategy in early releases."""

from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["IPUMultiReplicaStrategyV1"]

IPUMultiReplicaStrategyV1 = PopDistStrategy
