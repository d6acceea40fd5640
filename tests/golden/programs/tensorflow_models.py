"""TensorFlow models: four of Keras, and two programs of TensorFlow 1."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from tests.golden.exact_values import integers, numbers, weight
from tests.golden.program import Program, digests

__all__ = ["PROGRAMS"]

_CLASSES = 5


@contextmanager
def _tensorflow(ipus: int) -> Iterator[tuple[Any, Any]]:
    """Context manager of TensorFlow 2 and ``tensorflow.python.ipu``, with a device of ``ipus`` IPUs."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import_module("ipu_emu.tensorflow.install")
    tf, ipu = import_module("tensorflow"), import_module("tensorflow.python.ipu")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    try:
        yield tf, ipu
    finally:
        configured = import_module("ipu_emu.tensorflow.run.configured_system")
        configured.configure(configured.ConfiguredSystem())


def _images(rows: int) -> tuple[Any, Any]:
    return numbers("images", (rows, 6, 6, 3)), integers("classes", (rows,), _CLASSES)


def _convolutions(layers: Any, inputs: Any, stage: Any) -> Any:
    with stage(0):
        x = layers.Conv2D(4, 3, use_bias=False)(inputs)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    with stage(1):
        x = layers.Dropout(0.25)(layers.Flatten()(x))
        return layers.Dense(_CLASSES, "softmax")(x)


def _sequences(layers: Any, inputs: Any, stage: Any) -> Any:
    """A recurrent layer and attention over the rows of an image."""
    x = layers.LSTM(8, return_sequences=True)(layers.Reshape((6, 18))(inputs))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return layers.Dense(_CLASSES, "softmax")(layers.GlobalAveragePooling1D()(x))


def _positions(layers: Any, images: Any, stage: Any) -> Any:
    """Waves that TensorFlow would compute, from constants, added to the rows of an image."""
    tf = import_module("tensorflow")

    def with_waves(x: Any) -> Any:
        rates = 10000.0 ** (-tf.range(18.0) / 18.0)
        angles = tf.range(6.0)[:, None] * rates
        return x + tf.sin(angles) + tf.nn.softmax(tf.cos(angles) @ tf.eye(18) * 3.0)

    x = layers.Lambda(with_waves)(layers.Reshape((6, 18))(images))
    return layers.Dense(_CLASSES, "softmax")(layers.Flatten()(x))


def _keras(body: Any, optimiser: str, *, ipus: int = 1, fits: bool = True) -> dict[str, str]:
    """Two epochs of ``fit``, or a prediction."""
    x, y = _images(32)
    with _tensorflow(ipus) as (tf, ipu), ipu.ipu_strategy.IPUStrategy().scope():
        keras = tf.keras
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6, 6, 3))
        model = keras.Model(inputs, body(keras.layers, inputs, ipu.keras.PipelineStage))
        if ipus > 1:
            model.set_pipelining_options(4, gradient_accumulation_reduction_method="mean")
        else:
            model.reset_pipeline_stage_assignment()
        model.compile(optimiser, "sparse_categorical_crossentropy", steps_per_execution=4)
        model.set_weights([_initial(number, tensor.shape) for number, tensor in enumerate(model.weights)])
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4, drop_remainder=True)
        if not fits:
            return digests(results=np.asarray(model.predict(data, verbose=0)))
        losses = model.fit(data, epochs=2, verbose=0).history["loss"]
        return digests(losses=losses, weights=model)


def _initial(number: int, shape: Sequence[int]) -> Any:
    """Positive for vectors, which may be variances."""
    value = weight(f"{number}", shape)
    return value if len(shape) > 1 else np.abs(value)


def _graph(kind: str, dtype: Any) -> dict[str, str]:
    """A pipeline of three stages, or a loop of weight updates, in TensorFlow 1."""
    with _tensorflow(4) as (tf2, ipu), tf2.Graph().as_default():
        tf, (x, y) = (
            tf2.compat.v1,
            (numbers(name, (24, 4, size)).astype(dtype) for name, size in (("x", 6), ("y", 2))),
        )
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((x, y)).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        make = _pipeline if kind == "pipeline" else _loop
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(make(tf, ipu, _stages(tf, dtype), infeed, outfeed), [])
        dequeued = outfeed.dequeue()
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            session.run(operation)
            losses = np.asarray(session.run(dequeued)).ravel()
            session.run(infeed.deleter)
            weights = {variable.op.name: session.run(variable) for variable in tf.trainable_variables()}
            return digests(losses=losses, weights=weights)


def _stages(tf: Any, dtype: Any) -> list[Any]:
    def dense(x: Any, name: str, columns: int) -> Any:
        with tf.variable_scope(name, use_resource=True, reuse=tf.AUTO_REUSE):
            w = tf.get_variable("w", initializer=weight(name, (int(x.shape[-1]), columns)).astype(dtype))
        return tf.matmul(x, w)

    return [
        lambda x, y: (tf.tanh(dense(x, "first", 9)), y),
        lambda x, y: (tf.nn.sigmoid(dense(x, "second", 7)), y),
        lambda x, y: tf.reduce_mean(tf.square(dense(x, "last", 2) - y)),
    ]


def _pipeline(tf: Any, ipu: Any, stages: list[Any], infeed: Any, outfeed: Any) -> Any:
    rule = partial(ipu.pipelining_ops.OptimizerFunctionOutput, tf.train.MomentumOptimizer(0.0625, 0.875))
    how = {"gradient_accumulation_count": 12, "repeat_count": 2, "optimizer_function": rule}
    return partial(ipu.pipelining_ops.pipeline, stages, infeed_queue=infeed, outfeed_queue=outfeed, **how)


def _loop(tf: Any, ipu: Any, stages: list[Any], infeed: Any, outfeed: Any) -> Any:
    def body(x: Any, y: Any) -> Any:
        loss = stages[2](*stages[1](*stages[0](x, y)))
        return outfeed.enqueue(loss), tf.train.AdamOptimizer(0.01, epsilon=0.001).minimize(loss)

    return partial(ipu.loops.repeat, 8, body, infeed_queue=infeed)


_RUNS = {
    "keras: convolutions, Adam": partial(_keras, _convolutions, "adam"),
    "keras: convolutions, SGD, pipeline": partial(_keras, _convolutions, "sgd", ipus=2),
    "keras: sequences, RMSprop": partial(_keras, _sequences, "rmsprop"),
    "keras: positions, Adam": partial(_keras, _positions, "adam"),
    "keras: sequences, forward": partial(_keras, _sequences, "sgd", fits=False),
    "tensorflow: momentum, pipeline": partial(_graph, "pipeline", np.float32),
    "tensorflow: Adam, float16": partial(_graph, "loop", np.float16),
}

PROGRAMS = {name: Program(run, ("tensorflow", "tf_keras")) for name, run in _RUNS.items()}
