"""Trains under a PopDist strategy; each instance draws other weights, so that all must take those of the first."""

import sys

import numpy as np
import popdist
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import horovod

from ipu_emu.tensorflow.trace.frontend_state import frontend_state

tf.disable_v2_behavior()
horovod.init()
strategy = ipu.distributed.PopDistStrategy()
config = ipu.config.IPUConfig()
config.auto_select_ipus = popdist.getNumLocalReplicas()
strategy.update_ipu_config(config)
config.configure_ipu_system()

first, local = popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()
data = np.random.default_rng(0).normal(size=(6, strategy.num_replicas_in_sync, 4, 3)).astype(np.float32)
own = data[:, first : first + local].reshape(-1, 4, 3)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(own).repeat())
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def step(x):
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(popdist.getInstanceIndex() + 1))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
    update = tf.train.GradientDescentOptimizer(0.02).minimize(loss)
    with tf.control_dependencies([update]):
        return tf.identity(loss)


def body(x):
    loss = strategy.experimental_run_v2(step, args=[x])
    return outfeed.enqueue(strategy.reduce("mean", loss))


starts = np.random.default_rng(popdist.getInstanceIndex()).normal(size=(6, 3)).astype(np.float32)
with strategy.scope():
    more = [tf.get_variable(f"more{number}", initializer=value) for number, value in enumerate(starts)]
    run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(6, body, infeed_queue=infeed))
dequeued = outfeed.dequeue()
(w,) = (variable for variable in tf.trainable_variables() if variable.op.name == "w")
total = horovod.allreduce(tf.constant(float(horovod.rank())), op=horovod.Sum)
names = [f"named{number}" for number in range(6)]
if horovod.rank() == 1:
    names.reverse()  # instances match collectives by name
named = {name: horovod.allreduce(tf.constant(float(name[-1])), name=name) for name in names}
with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1 + horovod.rank())) as session:
    session.run([tf.global_variables_initializer(), infeed.initializer])
    before = session.run(w)
    session.run(run)
    losses = np.asarray(session.run(dequeued)).reshape(6, local)
    values = {"losses": losses, "before": before, "w": session.run(w)}
    values |= {"more": session.run(more), **session.run(named)}
    frontend_state().collectives.most_rounds = 30  # instead of those of a minute
    try:
        session.run(horovod.allreduce(tf.constant(1.0), name=f"loss of {horovod.rank()}"))
    except tf.errors.OpError as error:
        values["mistake"] = error.message
    values["after"] = session.run(total)
    np.savez(f"{sys.argv[1]}/{popdist.getInstanceIndex()}.npz", ranks=session.run(total), **values)
