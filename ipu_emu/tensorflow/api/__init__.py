"""API: ``tensorflow.python.ipu``, one thin module for each module that it mirrors."""

from ipu_emu.tensorflow.api import (
    config,
    gradient_accumulation,
    ipu_compiler,
    ipu_infeed_queue,
    ipu_outfeed_queue,
    loops,
    ops,
    optimizers,
    scopes,
    utils,
)
from ipu_emu.tensorflow.api.ops import cross_replica_ops, pipelining_ops, replication_ops

__all__ = [
    "config",
    "cross_replica_ops",
    "gradient_accumulation",
    "ipu_compiler",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "loops",
    "ops",
    "optimizers",
    "pipelining_ops",
    "replication_ops",
    "scopes",
    "utils",
]
