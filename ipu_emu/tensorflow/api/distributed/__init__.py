"""Distributed: training by several instances, and collectives of host values between them."""

from ipu_emu.tensorflow.api.distributed import popdist_strategy as ipu_multi_worker_strategy
from ipu_emu.tensorflow.api.distributed.host_collective_ops import allgather, allreduce, broadcast
from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy", "allgather", "allreduce", "broadcast", "ipu_multi_worker_strategy"]
