"""TensorFlow networks: losses for graph mode, and models of Keras, each with a batch in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

__all__ = ["NETS", "Loss", "cross_entropy", "keras_nets", "weights"]

Loss = Callable[[Any, Any], Any]


def weights(name: str, *shape: int) -> Any:
    values = np.random.default_rng(len(name)).normal(0, (shape[0] if len(shape) < 3 else 20) ** -0.5, shape)
    return tf.get_variable(name, initializer=values.astype(np.float32), use_resource=True)


def mlp(x: Any, y: Any) -> Any:
    for number, (rows, columns) in enumerate(((256, 512), (512, 512))):
        x = tf.nn.relu(tf.matmul(x, weights(f"w{number}", rows, columns)))
    return cross_entropy(tf.matmul(x, weights("out", 512, 10)), y)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def resnet8(x: Any, y: Any) -> Any:
    def conv(x: Any, channels: int, stride: int, name: str) -> Any:
        x = tf.nn.conv2d(x, weights(name, 3, 3, int(x.shape[3]), channels), stride, "SAME")
        scale, offset = (weights(f"{name}/{kind}", channels) for kind in ("scale", "offset"))
        return tf.nn.fused_batch_norm(x, scale, offset)[0]

    x = tf.nn.relu(conv(x, 16, 1, "stem"))
    for number, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        short = x if stride == 1 else tf.nn.conv2d(
            x, weights(f"short{number}", 1, 1, int(x.shape[3]), channels), stride, "SAME"
        )  # fmt: skip
        inner = tf.nn.relu(conv(x, channels, stride, f"a{number}"))
        x = tf.nn.relu(conv(inner, channels, 1, f"b{number}") + short)
    return cross_entropy(tf.matmul(tf.reduce_mean(x, [1, 2]), weights("out", 64, 10)), y)


def transformer(x: Any, y: Any) -> Any:
    batch, length, width, heads = 8, 64, 128, 4
    h = tf.gather(weights("embedding", 1000, width), x)

    def split(z: Any) -> Any:
        return tf.transpose(tf.reshape(z, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    def norm(z: Any, name: str) -> Any:
        mean, variance = tf.nn.moments(z, [-1], keepdims=True)
        return (z - mean) * tf.math.rsqrt(variance + 1e-5) * weights(f"{name}/g", width) + weights(f"{name}/b", width)

    def dense(z: Any, name: str, columns: int) -> Any:
        rows = int(z.shape[-1])
        flat = tf.matmul(tf.reshape(z, [-1, rows]), weights(name, rows, columns))
        return tf.reshape(flat, [batch, length, columns])

    for number in range(2):
        z = norm(h, f"n{number}")
        q, k, v = (split(dense(z, f"{name}{number}", width)) for name in "qkv")
        scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (width // heads) ** -0.5)
        joined = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [batch, length, width])
        h = h + dense(joined, f"o{number}", width)
        h = h + dense(tf.nn.relu(dense(norm(h, f"m{number}"), f"up{number}", 4 * width)), f"down{number}", width)
    return cross_entropy(tf.reshape(dense(h, "head", 1000), [-1, 1000]), tf.reshape(y, [-1]))


RANDOM = np.random.default_rng(0)
NETS: dict[str, tuple[Loss, Any, Any]] = {
    "MLP, batch 64": (mlp, RANDOM.normal(size=(64, 256)).astype(np.float32), RANDOM.integers(0, 10, 64)),
    "ResNet-8, batch 16": (
        resnet8,
        RANDOM.normal(size=(16, 32, 32, 3)).astype(np.float32),
        RANDOM.integers(0, 10, 16),
    ),
    "transformer, 8 x 64": (transformer, RANDOM.integers(0, 1000, (8, 64)), RANDOM.integers(0, 1000, (8, 64))),
}


def keras_nets() -> dict[str, tuple[Callable[[], Any], Any]]:
    """Models of Keras by name, each with a batch."""
    import tf_keras as keras

    layers = keras.layers

    def mlp() -> Any:
        return keras.Sequential([layers.Dense(512, "relu"), layers.Dense(512, "relu"), layers.Dense(10, "softmax")])

    def cnn() -> Any:
        blocks: list[Any] = []
        for channels, stride in ((16, 1), (32, 2), (64, 2)):
            blocks.append(layers.Conv2D(channels, 3, stride, "same", use_bias=False))
            blocks += [layers.BatchNormalization(), layers.ReLU()]
        return keras.Sequential([*blocks, layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")])

    def bert() -> Any:
        tokens = keras.Input((64,), 8, dtype="int32")
        x = layers.Embedding(1000, 128)(tokens)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
        return keras.Model(tokens, layers.Dense(10, "softmax")(x[:, 0]))

    def lstm() -> Any:
        return keras.Sequential([layers.LSTM(64), layers.Dense(10, "softmax")])

    return {
        "Keras MLP": (mlp, RANDOM.normal(size=(64, 256)).astype(np.float32)),
        "Keras CNN, batch norm": (cnn, RANDOM.normal(size=(16, 32, 32, 3)).astype(np.float32)),
        "Keras BERT, small": (bert, RANDOM.integers(0, 1000, (8, 64)).astype(np.int32)),
        "Keras LSTM": (lstm, RANDOM.normal(size=(32, 20, 32)).astype(np.float32)),
    }
