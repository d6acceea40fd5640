"""Pipelined models: the same numbers as plain Keras, the same bits for all schedules and mappings."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import assert_close, images

Make = Callable[[Any, Any], Any]


def staged(keras: Any, stage: Any) -> Any:
    """Two branches over three stages, a regularised layer in the first, and a layer that is called twice."""
    layers = keras.layers
    inputs = keras.Input((6, 6, 3))
    with stage(0):
        x = layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2")(inputs)
    with stage(1):
        twice = layers.Conv2D(4, 3, padding="same", activation="tanh")
        y = layers.Add()([twice(twice(x)), x])
    with stage(2):
        return keras.Model(inputs, layers.Dense(5, "softmax")(layers.Flatten()(layers.Concatenate()([x, y]))))


def sequential(keras: Any, stage: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Conv2D(4, 3), layers.ReLU(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(5, "softmax")]
    )
    model.set_pipeline_stage_assignment([0, 0, 1, 1, 2])
    return model


def fit(tf2: Any, strategy: Any, ipu: Any, make: Make, **options: Any) -> Any:
    """Losses, weights and predictions of two executions of two updates each."""
    keras, dataset = tf2.keras, tf2.data.Dataset.from_tensor_slices(images(10)).batch(8, drop_remainder=True)
    keras.backend.clear_session()  # random numbers follow from the names of layers
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = make(keras, ipu.keras.PipelineStage)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=6, **options)
        model.compile(
            keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=12
        )
        history = model.fit(dataset.repeat(), epochs=2, steps_per_epoch=12, verbose=0).history
        return [*history.values(), *model.get_weights(), model.predict(dataset, verbose=0)]


@pytest.mark.parametrize("make", [staged, sequential])
def test_schedules_mappings_and_memory_options_have_the_same_bits(
    tf2: Any, ipu: Any, strategy: Any, configure: Any, make: Make
) -> None:
    schedules = ipu.pipelining_ops.PipelineSchedule
    configure(4)
    expected = fit(tf2, strategy, ipu, make)
    variants: list[dict[str, Any]] = [
        {"pipeline_schedule": schedules.Interleaved, "device_mapping": [2, 0, 1]},
        {"pipeline_schedule": schedules.Sequential, "offload_weight_update_variables": True},
        {"device_mapping": [0, 1, 0], "offload_activations": True},
    ]
    for number, options in enumerate(variants):
        configure(2 if number == 2 else 4, allow_recompute=number == 0)
        for result, other in zip(fit(tf2, strategy, ipu, make, **options), expected, strict=True):
            np.testing.assert_array_equal(result, other)


@pytest.mark.parametrize(("method", "rate"), [("sum", 0.01), ("MEAN", 0.06), ("running_mean", 0.06)])
def test_a_pipeline_equals_plain_keras_on_larger_batches(
    tf2: Any, ipu: Any, strategy: Any, configure: Any, method: str, rate: float
) -> None:
    keras, (x, y) = tf2.keras, images(13)
    configure(4)
    weights, losses = [], []
    for pipelined in (True, False):
        keras.utils.set_random_seed(3)
        with strategy.scope() if pipelined else nullcontext():
            model = staged(keras, ipu.keras.PipelineStage if pipelined else lambda number: nullcontext())
            model.compile(
                keras.optimizers.SGD(rate if pipelined else 0.06, 0.9), "sparse_categorical_crossentropy",
                steps_per_execution=12 if pipelined else 1,
            )  # fmt: skip
            if pipelined:
                model.set_pipelining_options(6, gradient_accumulation_reduction_method=method)
            history = model.fit(x[:96], y[:96], 8 if pipelined else 48, shuffle=False, verbose=0).history
        weights.append(model.get_weights())
        losses.append(history["loss"])
    assert_close(weights[0], weights[1])
    assert_close(losses[0], losses[1], 1e-5)


def test_accumulation_without_stages_has_the_bits_of_a_pipeline(
    tf2: Any, ipu: Any, strategy: Any, configure: Any
) -> None:
    keras, (x, y) = tf2.keras, images(13)
    results = []
    for pipelined in (True, False):
        configure(4 if pipelined else 1)
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = staged(keras, ipu.keras.PipelineStage)
            if pipelined:
                model.set_pipelining_options(6)
            else:
                model.reset_pipeline_stage_assignment()
                model.set_gradient_accumulation_options(6)
            model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=12)
            history = model.fit(x[:96], y[:96], 8, shuffle=False, verbose=0).history
        results.append([*history.values(), *model.get_weights()])
    for result, other in zip(*results, strict=True):
        np.testing.assert_array_equal(result, other)


def test_a_subclassed_model_is_pipelined_by_its_calls(tf2: Any, ipu: Any, strategy: Any, configure: Any) -> None:
    keras, (x, y) = tf2.keras, images(7)

    class Net(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flatten, self.hidden = keras.layers.Flatten(), keras.layers.Dense(16, "tanh")
            self.twice, self.out = keras.layers.Dense(16, "relu"), keras.layers.Dense(5, "softmax")

        def call(self, x: Any) -> Any:
            x = self.hidden(self.flatten(x))
            return self.out(self.twice(self.twice(x) + x))

    results = []
    for pipelined in (True, False):
        configure(2 if pipelined else 1)
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = Net()
            model.build((None, 6, 6, 3))
            assignments = model.get_pipeline_stage_assignment()
            assert [entry.layer.name.split("_")[0] for entry in assignments] == ["flatten", *["dense"] * 4]
            assert [entry.node_index for entry in assignments] == [0, 0, 0, 1, 0]
            if pipelined:
                for entry, stage in zip(assignments, (0, 0, 1, 1, 1), strict=True):
                    entry.pipeline_stage = stage
                model.set_pipeline_stage_assignment(assignments)
                model.set_pipelining_options(4)
            else:
                model.set_gradient_accumulation_options(4)
            model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
            model.fit(x[:32], y[:32], 8, shuffle=False, verbose=0)
            results.append([*model.get_weights(), model.predict(x[:16], 8, verbose=0)])
    for entry, other in zip(*results, strict=True):
        np.testing.assert_array_equal(entry, other)


def test_the_classes_of_early_releases_train_like_plain_keras_on_larger_batches(
    tf2: Any, ipu: Any, strategy: Any, configure: Any
) -> None:
    """An execution is one weight update, unless ``compile`` says otherwise."""
    keras, (x, y) = tf2.keras, images(13)
    configure(2)

    def layers() -> list[Any]:
        return [keras.layers.Flatten(), keras.layers.Dense(4, "relu"), keras.layers.Dense(5, "softmax")]

    def functional() -> Any:
        flat, hidden, last = layers()
        inputs = keras.Input((6, 6, 3))
        with ipu.keras.PipelineStage(0):
            h = hidden(flat(inputs))
        with ipu.keras.PipelineStage(1):
            return ipu.keras.PipelineModel(inputs=inputs, outputs=last(h), gradient_accumulation_count=4)

    def staged_lists() -> Any:
        flat, hidden, last = layers()
        return ipu.keras.PipelineSequential([[flat, hidden], [last]], 4, device_mapping=[1, 0])

    results = []
    for make in (lambda: keras.Sequential(layers()), functional, staged_lists):
        keras.utils.set_random_seed(3)
        plain = not results
        with nullcontext() if plain else strategy.scope():
            model = make()
            model.compile(keras.optimizers.SGD(0.04 if plain else 0.01), "sparse_categorical_crossentropy")
            model.fit(x[:96], y[:96], 32 if plain else 8, epochs=2, shuffle=False, verbose=0)
            results.append([*model.get_weights(), model.predict(x[:96], 8, verbose=0)])
    for result in results[1:]:
        assert_close(result, results[0], 1e-5)
