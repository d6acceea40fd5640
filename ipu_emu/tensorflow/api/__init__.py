"""API: ``tensorflow.python.ipu``, one thin module for each module that it mirrors."""

from ipu_emu.tensorflow.api import (
    config,
    dataset_benchmark,
    distributed,
    estimator,
    gradient_accumulation,
    ipu_compiler,
    ipu_infeed_queue,
    ipu_outfeed_queue,
    ipu_strategy,
    loops,
    ops,
    optimizers,
    scopes,
    sharding,
    utils,
)
from ipu_emu.tensorflow.api.distributed import horovod, popdist_strategy
from ipu_emu.tensorflow.api.distributed import popdist_strategy as ipu_multi_worker_strategy
from ipu_emu.tensorflow.api.estimator import (
    ipu_estimator,
    ipu_pipeline_estimator,
    ipu_run_config,
    ipu_session_run_hooks,
)
from ipu_emu.tensorflow.api.ops import (
    all_to_all_op,
    cross_replica_ops,
    embedding_ops,
    functional_ops,
    grad_util_ops,
    image_ops,
    internal_ops,
    math_ops,
    nn_ops,
    normalization_ops,
    pipelining_ops,
    rand_ops,
    reduce_scatter_op,
    replication_ops,
    rnn_ops,
    slicing_ops,
    summary_ops,
    within_replica_ops,
)
from ipu_emu.tensorflow.api.optimizers import (
    cross_replica_optimizer,
    gradient_accumulation_optimizer,
    ipu_optimizer,
    map_gradient_optimizer,
    sharded_optimizer,
)

__all__ = [
    "all_to_all_op", "config", "cross_replica_ops", "cross_replica_optimizer", "dataset_benchmark", "distributed",
    "embedding_ops", "estimator", "functional_ops", "grad_util_ops", "gradient_accumulation",
    "gradient_accumulation_optimizer", "horovod", "image_ops", "internal_ops", "ipu_compiler", "ipu_estimator",
    "ipu_infeed_queue", "ipu_multi_worker_strategy", "ipu_optimizer", "ipu_outfeed_queue", "ipu_pipeline_estimator",
    "ipu_run_config", "ipu_session_run_hooks", "ipu_strategy", "loops", "map_gradient_optimizer", "math_ops",
    "nn_ops", "normalization_ops", "ops", "optimizers", "pipelining_ops", "popdist_strategy", "rand_ops",
    "reduce_scatter_op", "replication_ops", "rnn_ops", "scopes", "sharded_optimizer", "sharding", "slicing_ops",
    "summary_ops", "utils", "within_replica_ops",
]  # fmt: skip
