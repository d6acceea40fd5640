"""Tutorials: small programs like those of introductions to Keras have the results of plain Keras."""

from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import assert_close

FIT = {"epochs": 2, "batch_size": 16, "shuffle": False, "verbose": 0}


def structured_data(tf: Any, random: Any) -> Any:
    """Numbers and categories that are encoded in the model, from a data set of dicts."""
    layers = tf.keras.layers
    age, kind = tf.keras.Input((1,), name="age"), tf.keras.Input((1,), name="kind", dtype="int64")
    encoded = layers.CategoryEncoding(num_tokens=3, output_mode="one_hot")(kind)
    joined = layers.concatenate([layers.Normalization(mean=40.0, variance=100.0)(age), encoded])
    out = layers.Dense(1, activation="sigmoid")(layers.Dense(8, "relu")(joined))
    model = tf.keras.Model({"age": age, "kind": kind}, out)
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", tf.keras.metrics.AUC()])
    features = {"age": random.normal(40, 10, (32, 1)).astype(np.float32), "kind": random.integers(0, 3, (32, 1))}
    dataset = tf.data.Dataset.from_tensor_slices((features, random.integers(0, 2, 32))).batch(16)
    return model.fit(dataset, epochs=2, verbose=0, validation_data=dataset).history


def segmentation(tf: Any, random: Any) -> Any:
    """Volumes, and metrics from a confusion matrix."""
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Conv3D(4, 2, padding="same", input_shape=(4, 4, 4, 1)), layers.BatchNormalization(),
        layers.ReLU(), layers.Conv3D(3, 1, activation="softmax"),
    ])  # fmt: skip
    metrics = [tf.keras.metrics.MeanIoU(3, sparse_y_pred=False)]
    model.compile("rmsprop", "sparse_categorical_crossentropy", metrics)
    x, y = random.random((32, 4, 4, 4, 1)).astype(np.float32), random.integers(0, 3, (32, 4, 4, 4, 1))
    history = model.fit(x, y, **FIT).history
    return {"loss": history["loss"], "iou": next(history[name] for name in history if "io_u" in name)}


def distillation(tf: Any, random: Any) -> Any:
    """A model with its own compile, train_step and test_step, which contains two others."""
    keras = tf.keras
    small, large = (
        keras.Sequential([keras.layers.Dense(n, "relu", input_shape=(8,)), keras.layers.Dense(3)]) for n in (4, 16)
    )

    class Distiller(keras.Model):  # type: ignore[misc]
        def compile(self, optimizer: Any, hard: Any, soft: Any) -> None:
            super().compile(optimizer=optimizer, metrics=["accuracy"])
            self.hard, self.soft = hard, soft

        def train_step(self, data: Any) -> Any:
            x, y = data
            taught = large(x, training=False)
            with tf.GradientTape() as tape:
                logits = small(x, training=True)
                loss = self.hard(y, logits) + self.soft(tf.nn.softmax(taught / 3), tf.nn.softmax(logits / 3))
            variables = small.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"soft": loss}

        def test_step(self, data: Any) -> Any:
            return {"hard": self.hard(data[1], small(data[0], training=False))}

    model, losses = Distiller(), keras.losses
    model.compile(keras.optimizers.Adam(), losses.SparseCategoricalCrossentropy(True), losses.KLDivergence())
    x, y = random.random((64, 8)).astype(np.float32), random.integers(0, 3, 64)
    return {"soft": model.fit(x, y, **FIT).history["soft"], "hard": np.asarray(model.evaluate(x, y, verbose=0))}


def siamese(tf: Any, random: Any) -> Any:
    """A network that is called twice, and a loss that is a function."""
    keras, layers = tf.keras, tf.keras.layers
    base = keras.Sequential([layers.BatchNormalization(), layers.Flatten(), layers.Dense(10, activation="tanh")])
    a, b = keras.Input((8, 8, 1)), keras.Input((8, 8, 1))
    distance = layers.Lambda(lambda pair: tf.norm(pair[0] - pair[1] + 1e-6, axis=1, keepdims=True))
    model = keras.Model([a, b], layers.Dense(1, activation="sigmoid")(distance([base(a), base(b)])))

    def contrastive(y: Any, p: Any) -> Any:
        return tf.reduce_mean((1 - y) * p**2 + y * tf.maximum(1 - p, 0) ** 2)

    model.compile(keras.optimizers.SGD(0.1), contrastive)
    x, y = random.random((2, 32, 8, 8, 1)).astype(np.float32), random.integers(0, 2, (32, 1)).astype(np.float32)
    return model.fit([x[0], x[1]], y, validation_split=0.25, **FIT).history


@pytest.mark.parametrize("program", [structured_data, segmentation, distillation, siamese])
def test_a_tutorial_has_the_numbers_of_plain_keras(tf2: Any, both: Any, program: Any) -> None:
    expected, actual = both(lambda: program(tf2, np.random.default_rng(0)))
    assert_close(list(actual.values()), list(expected.values()))
