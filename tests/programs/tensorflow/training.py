"""Trains with dropout on all replicas of the job, by TensorFlow for the IPU; each instance writes losses and weights.

A third argument divides the states of the optimizer between replicas.
"""

import sys

import numpy as np
import popdist
import popdist.tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()
config = ipu.config.IPUConfig()
popdist.tensorflow.set_ipu_config(config, ipus_per_replica=int(sys.argv[2]))

REPLICAS, BATCHES, COUNT = 4, 3, 4
first, local = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
data = np.random.default_rng(0).normal(size=(BATCHES * COUNT, REPLICAS, 2, 6)).astype(np.float32)
own = data[:, first : first + local].reshape(-1, 2, 6)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(own).repeat())
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def weights(name, shape):
    values = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
    return tf.get_variable(name, initializer=values)


def first_stage(x):
    return tf.nn.dropout(tf.tanh(tf.matmul(x, weights("w", (6, 9)))), rate=0.3)


def second_stage(x):
    return tf.reduce_mean(tf.square(tf.matmul(x, weights("weights", (9, 4))) - 1.0))


def optimizer(loss):
    opt = ipu.optimizers.CrossReplicaOptimizer(tf.train.MomentumOptimizer(0.05, 0.9))
    return ipu.pipelining_ops.OptimizerFunctionOutput(opt, loss)


def program():
    return ipu.pipelining_ops.pipeline(
        [first_stage, second_stage], gradient_accumulation_count=COUNT, repeat_count=BATCHES,
        infeed_queue=infeed, outfeed_queue=outfeed, optimizer_function=optimizer, reduction_method="mean",
        offload_weight_update_variables=True, replicated_optimizer_state_sharding="sharded" in sys.argv,
    )  # fmt: skip


with ipu.scopes.ipu_scope("/device:IPU:0"):
    run = ipu.ipu_compiler.compile(program)
dequeued = outfeed.dequeue()
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed.initializer])
    session.run(run)
    losses = np.asarray(session.run(dequeued)[0]).reshape(BATCHES * COUNT, local)
    values = session.run(tf.trainable_variables())
np.savez(f"{sys.argv[1]}/{popdist.getInstanceIndex()}.npz", losses=losses, w=values[0], weights=values[1])
