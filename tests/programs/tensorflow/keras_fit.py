"""Fits Keras models on all replicas of the job, with and without stages; each instance writes metrics and weights."""

import sys

import numpy as np
import popdist
import popdist.tensorflow
import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
popdist.tensorflow.set_ipu_config(config, ipus_per_replica=2)
layers, STEPS = tf.keras.layers, 8
results = {}


def build():
    inputs = tf.keras.Input((6, 6, 3))
    with ipu.keras.PipelineStage(0):
        x = layers.BatchNormalization()(layers.Conv2D(4, 3, activation="relu")(inputs))
    with ipu.keras.PipelineStage(1):
        x = layers.Dropout(0.3)(layers.Flatten()(x))
        return tf.keras.Model(inputs, layers.Dense(5, "softmax")(x))


for kind, replicas in (("pipelined", 1), ("whole", 2)):  # without stages a replica is one IPU
    total = 4 * replicas
    first, local = popdist.getReplicaIndexOffset() * replicas, popdist.getNumLocalReplicas() * replicas
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS, total, 4, 6, 6, 3)).astype(np.float32)[:, first : first + local]
    y = random.integers(0, 5, (STEPS, total, 4))[:, first : first + local]
    arrays = (x.reshape(-1, 4, 6, 6, 3), y.reshape(-1, 4))
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = build()
        if kind == "whole":
            model.reset_pipeline_stage_assignment()
            model.set_gradient_accumulation_options(2)
        else:
            model.set_pipelining_options(4, gradient_accumulation_reduction_method="mean")
        model.set_replication_options("LIST")
        model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=4)
        history = model.fit(dataset, epochs=2, verbose=0).history
        for name, values in history.items():
            results[f"{kind}/{name}"] = np.asarray(values).reshape(2, local)
        for number, array in enumerate(model.trainable_weights):
            results[f"{kind}/{number}"] = array.numpy()
        results[f"{kind}/moving"] = model.layers[2].moving_mean.numpy()
np.savez(f"{sys.argv[1]}/{popdist.getInstanceIndex()}.npz", **results)
