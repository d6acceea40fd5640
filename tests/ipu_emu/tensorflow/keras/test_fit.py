"""fit, evaluate and predict: the same numbers as plain Keras, for all kinds of models, optimizers and data."""

from typing import Any

import numpy as np
import pytest

from ipu_emu.hostio import digest
from popdist_py.environment import VERBOSITY
from tests.ipu_emu.tensorflow.keras.conftest import assert_close, images


def sequential(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Conv2D(4, 3, use_bias=False, input_shape=(6, 6, 3)),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(5, "softmax"),
        ]
    )


def functional(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input((6, 6, 3))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(inputs))
    y = layers.Activation("relu")(x) + layers.Conv2D(4, 1, strides=2, kernel_regularizer="l2")(inputs)
    return keras.Model(inputs, layers.Dense(5, "softmax")(layers.GlobalAveragePooling2D()(y)))


def subclassed(keras: Any) -> Any:
    class Net(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flatten, self.norm = keras.layers.Flatten(), keras.layers.LayerNormalization()
            self.hidden, self.out = keras.layers.Dense(16, "tanh"), keras.layers.Dense(5, "softmax")

        def call(self, x: Any, training: bool = False) -> Any:
            x = self.norm(self.hidden(self.flatten(x)))
            if training:
                x = x * 1.5
            return self.out(x)

    return Net()


def dense(keras: Any) -> Any:
    return keras.Sequential([keras.layers.Flatten(input_shape=(6, 6, 3)), keras.layers.Dense(5, "softmax")])


def optimizers(keras: Any) -> dict[str, Any]:
    import ipu_tensorflow_addons.keras.optimizers as addons  # type: ignore[import-not-found]

    opts, old = keras.optimizers, keras.optimizers.legacy
    decayed = opts.schedules.ExponentialDecay(0.05, 2, 0.5)
    weights = {"l1_regularization_strength": 1e-3, "l2_regularization_strength": 1e-3}
    return {
        "SGD": lambda: opts.SGD(0.05),
        "SGD, averaged": lambda: opts.SGD(0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
        "Nesterov": lambda: opts.SGD(0.02, momentum=0.9, nesterov=True),
        "Adam": lambda: opts.Adam(0.01, amsgrad=True),
        "Adam, scaled loss": lambda: keras.mixed_precision.LossScaleOptimizer(opts.Adam(0.01)),
        "RMSprop": lambda: opts.RMSprop(0.003, momentum=0.5, centered=True),
        "AdamW": lambda: opts.AdamW(decayed, weight_decay=0.02),
        "Adagrad, clipped": lambda: opts.Adagrad(0.05, global_clipnorm=0.3),
        "Adadelta": lambda: opts.Adadelta(1.0),
        "Adafactor": lambda: opts.Adafactor(0.05),
        "Adamax": lambda: opts.Adamax(0.01),
        "Ftrl": lambda: opts.Ftrl(0.05, **weights),
        "Lion": lambda: opts.Lion(0.002),
        "Nadam": lambda: opts.Nadam(0.01),
        "legacy Adadelta": lambda: old.Adadelta(1.0),
        "legacy Adagrad": lambda: old.Adagrad(0.05),
        "legacy Adam": lambda: old.Adam(0.01, amsgrad=True),
        "legacy Adam, schedule": lambda: old.Adam(decayed, clipnorm=0.2),
        "legacy Adamax": lambda: old.Adamax(0.01),
        "legacy Ftrl": lambda: old.Ftrl(0.05),
        "legacy Ftrl, shrunk": lambda: old.Ftrl(0.05, l2_shrinkage_regularization_strength=1e-3, **weights),
        "legacy Nadam": lambda: old.Nadam(0.01),
        "legacy RMSprop": lambda: old.RMSprop(0.003),
        "legacy RMSprop, centred": lambda: old.RMSprop(0.003, momentum=0.5, centered=True),
        "legacy SGD, clipped": lambda: old.SGD(0.05, momentum=0.9, nesterov=True, clipvalue=0.1),
        "AdamIpu": lambda: addons.AdamIpuOptimizer(0.01, amsgrad=True),
        "LAMBIpu": lambda: addons.LAMBIpuOptimizer(0.01, weight_decay_rate=0.01),
        "SGDIpu": lambda: addons.SGDIpuOptimizer(0.02, momentum=0.9),
    }


def fitted(keras: Any, make: Any, optimizer: Any, steps: int = 2) -> tuple[Any, Any]:
    """History and weights after full batches of a data set, which need one program and no functions of Keras."""
    import tensorflow as tf

    model, (x, y) = make(keras), images()
    model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=steps)
    batches = tf.data.Dataset.from_tensor_slices((x[:32], y[:32])).batch(8, drop_remainder=True)
    return model.fit(batches, epochs=2, verbose=0).history, model.get_weights()


def trained(keras: Any, make: Any, optimizer: Any, steps: int = 2) -> tuple[Any, ...]:
    """History, weights, statistics and predictions of a model, with a batch that is smaller."""
    model, (x, y) = make(keras), images()
    model.compile(optimizer, "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=steps)
    history = model.fit(
        x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=(x[:16], y[:16])
    ).history
    return history, model.get_weights(), [model.predict(x[:16], 16, verbose=0)]


#: Each optimizer with one kind of model; the others are trained with ``--full``.
SAMPLED = {
    "SGD": sequential, "Nesterov": functional, "Adam": subclassed, "RMSprop": sequential, "AdamW": functional,
    "Adagrad, clipped": subclassed, "legacy Adam, schedule": functional, "legacy Ftrl": sequential,
    **dict.fromkeys(
        ("SGD, averaged", "Adam, scaled loss", "Adadelta", "Adafactor", "Adamax", "Ftrl", "Lion", "legacy Adadelta",
         "legacy Adagrad", "legacy Adam", "legacy Adamax", "legacy Ftrl, shrunk", "legacy Nadam", "legacy RMSprop",
         "legacy RMSprop, centred", "legacy SGD, clipped", "AdamIpu", "LAMBIpu", "Nadam", "SGDIpu"),
        dense,
    ),
}  # fmt: skip
#: Optimizers of models that are evaluated and predict too; with ``--full`` all but those of the dense one.
EVALUATED = ("SGD", "Nesterov", "Adam")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(make, name, marks=() if make is sample else pytest.mark.full)
        for name, sample in SAMPLED.items()
        for make in (sequential, functional, subclassed, dense)
    ],
)
def test_training_equals_plain_keras(tf2: Any, both: Any, make: Any, name: str, full: bool) -> None:
    keras, run = tf2.keras, trained if (full or name in EVALUATED) and make is not dense else fitted
    # Nadam counts the traces of its variables, so that in plain Keras it depends on the steps of an execution.
    nadam = name == "Nadam"
    expected, actual = both(lambda: run(keras, make, optimizers(keras)[name](), 1 if nadam else 2), graphs=nadam)
    for result, other in zip(actual, expected, strict=True):
        assert_close(result, other, 5e-6 if (make, name) == (subclassed, "legacy Adam, schedule") else 1e-6)
    assert len(np.unique(actual[0]["loss"])) == 2


def test_a_result_that_is_not_that_of_plain_keras_is_nearer_to_that_of_64_bits(tf2: Any, both: Any) -> None:
    """Adam divides gradients by their size, so rounding errors of small gradients appear in the result."""
    keras, start = tf2.keras, []

    def make(keras: Any) -> Any:
        model = subclassed(keras)
        model.build((None, 6, 6, 3))
        start.append(model.get_weights())
        model.set_weights(start[0])
        return model

    def weights() -> Any:
        return fitted(keras, make, optimizers(keras)["legacy Adam, schedule"]())[1]

    plain, actual = both(weights)
    keras.backend.set_floatx("float64")
    try:
        exact = weights()
    finally:
        keras.backend.set_floatx("float32")
    ours, theirs = (
        max(np.abs(a - b).max() for a, b in zip(result, exact, strict=True)) for result in (actual, plain)
    )
    assert exact[0].dtype == np.float64
    assert ours <= theirs < 1e-5


def test_steps_in_one_execution_have_the_bits_of_single_ones(tf2: Any, strategy: Any) -> None:
    results = []
    for steps in (1, 2, 5):
        tf2.keras.utils.set_random_seed(1)
        with strategy.scope():
            results.append(trained(tf2.keras, sequential, "adam", steps))
    for history, weights, *_ in results[1:]:
        assert history == results[0][0]
        for weight, other in zip(weights, results[0][1], strict=True):
            np.testing.assert_array_equal(weight, other)


def test_weights_of_samples_and_classes(tf2: Any, both: Any) -> None:
    def fit() -> Any:
        model, (x, y) = sequential(tf2.keras), images()
        model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
        samples = np.linspace(0, 1, len(x)).astype(np.float32)
        first = model.fit(x, y, 8, sample_weight=samples, shuffle=False, verbose=0).history
        second = model.fit(x, y, 8, class_weight={0: 0.1, 1: 3, 2: 1, 3: 1, 4: 0}, shuffle=False, verbose=0).history
        return first["loss"] + first["accuracy"] + second["loss"]

    assert_close(*both(fit))


def test_a_custom_step_with_several_inputs_losses_and_metrics(tf2: Any, both: Any) -> None:
    tf, keras = tf2, tf2.keras

    class Distance(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="distance")
            self.total = self.add_weight("total", initializer="zeros")

        def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(tf.reduce_sum(tf.abs(tf.cast(y, tf.float32) - y_pred)))

        def result(self) -> Any:
            return self.total

    class Custom(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted) + 0.1 * tf.reduce_mean(predicted["a"] ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"extra": loss, **self.compute_metrics(x, y, predicted, None)}

    def fit() -> Any:
        u, v = keras.Input((4,), name="u"), keras.Input((3,), name="v")
        joined = keras.layers.Concatenate()([u, v])
        model = Custom({"u": u, "v": v}, {name: keras.layers.Dense(2, name=name)(joined) for name in "ab"})
        model.compile("adam", {"a": "mse", "b": lambda y, p: tf.abs(y - p)}, metrics={"b": [Distance()]})
        random = np.random.default_rng(0)
        x = {name: random.normal(size=(16, n)).astype(np.float32) for name, n in (("u", 4), ("v", 3))}
        y = {name: random.normal(size=(16, 2)).astype(np.float32) for name in "ab"}
        history = model.fit(x, y, 4, epochs=2, shuffle=False, verbose=0).history
        predicted = model.predict(x, verbose=0)
        return [*history.values(), predicted["a"], predicted["b"], *model.evaluate(x, y, verbose=0)]

    assert_close(*both(fit))


def test_callbacks_data_sets_and_single_batches(tf2: Any, both: Any) -> None:
    keras = tf2.keras
    dataset = tf2.data.Dataset.from_tensor_slices(images(4)).batch(8, drop_remainder=True).repeat()

    def fit() -> Any:
        seen: list[float] = []

        class Watch(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                seen.extend((batch, logs["loss"]))

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.stop_training = epoch == 1

        model = sequential(keras)
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", steps_per_execution=2)
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
        history = model.fit(dataset, epochs=5, steps_per_epoch=4, callbacks=[Watch(), schedule], verbose=0).history
        model.compile("sgd", "sparse_categorical_crossentropy")
        x, y = images()
        batches = [model.train_on_batch(x[:7], y[:7]), model.test_on_batch(x[:3], y[:3])]
        return [seen, history["loss"], history["lr"], batches, model.predict_on_batch(x[:5])]

    expected, actual = both(fit)
    assert len(expected[0]) == 8
    assert_close(actual, expected)


def test_a_batch_without_samples_gives_the_results_of_keras(tf2: Any, both: Any) -> None:
    def batches() -> list[Any]:
        model = sequential(tf2.keras)
        model.compile("sgd", "sparse_categorical_crossentropy")
        x, y = images()
        return [model.predict_on_batch(x[:0]), model.train_on_batch(x[:0], y[:0]), model.test_on_batch(x[:0], y[:0])]

    expected, actual = both(batches)
    assert actual[0].shape == expected[0].shape == (0, 5)
    assert actual[1:] == expected[1:]


def test_a_model_that_is_not_compiled_predicts(tf2: Any, both: Any) -> None:
    assert_close(*both(lambda: functional(tf2.keras).predict(images()[0], 8, verbose=0)))


def test_a_model_is_saved_and_continues_with_the_same_bits(tf2: Any, strategy: Any, tmp_path: Any) -> None:
    keras, (x, y) = tf2.keras, images()
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    with strategy.scope():
        model = functional(keras)
        model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"])
        model.fit(x, y, **options)
        model.save(tmp_path / "model.keras")
        model.save(tmp_path / "model.h5")
        model.save_weights(tmp_path / "weights")
        expected = model.fit(x, y, **options).history, model.get_weights()
        for name in ("model.keras", "model.h5"):
            loaded = keras.models.load_model(tmp_path / name)
            assert loaded.fit(x, y, **options).history == expected[0]
            for weight, other in zip(loaded.get_weights(), expected[1], strict=True):
                np.testing.assert_array_equal(weight, other)
        model.load_weights(tmp_path / "weights").expect_partial()
        assert model.fit(x, y, **options).history == expected[0]


def test_a_subclassed_model_is_trained_after_it_was_loaded(tf2: Any, both: Any, tmp_path: Any) -> None:
    """A SavedModel contains only the graphs of its functions. In plain Keras the model itself is trained on."""
    keras, (x, y) = tf2.keras, images()

    class Scaled(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flatten, self.out = keras.layers.Flatten(), keras.layers.Dense(5, "softmax")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.out(self.flatten(x) * (1.5 if training else 1.0))

    def fit() -> Any:
        model = Scaled()
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(x[:8], y[:8], verbose=0)
        if tf2.distribute.has_strategy():
            model.save(tmp_path / "model")
            model = keras.models.load_model(tmp_path / "model")
        history = model.fit(x, y, 8, shuffle=False, verbose=0).history
        return [history["loss"], *model.get_weights(), model.predict(x, verbose=0)]

    assert_close(*both(fit))


def test_a_data_set_that_ends_early_ends_the_training(tf2: Any, strategy: Any) -> None:
    dataset = tf2.data.Dataset.from_tensor_slices(images(4)).batch(8, drop_remainder=True)
    with strategy.scope():
        model = sequential(tf2.keras)
        model.compile("sgd", "sparse_categorical_crossentropy")
        assert len(model.fit(dataset, steps_per_epoch=5, epochs=2, verbose=0).history["loss"]) == 1
        model.fit(dataset, verbose=0)


def test_an_infeed_prefetches_only_what_an_execution_needs(
    tf2: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipu_emu.tensorflow.run.feeds import element_source

    ahead: list[tuple[Any, ...]] = []

    class Seen(element_source.PrefetchQueue):
        def __init__(self, *arguments: Any) -> None:
            ahead.append(arguments[1:])
            super().__init__(*arguments)

    monkeypatch.setattr(element_source, "PrefetchQueue", Seen)
    histories = []
    with strategy.scope():
        for depth in (None, 3):
            dataset = tf2.data.Dataset.from_tensor_slices(images()).batch(4, drop_remainder=True)
            tf2.keras.utils.set_random_seed(1)
            model = sequential(tf2.keras)
            model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=2)
            model.set_infeed_queue_options(prefetch_depth=depth)
            histories.append(model.fit(dataset, steps_per_epoch=2, epochs=3, verbose=0).history)
    assert histories[0] == histories[1]
    assert ahead == [(3, 2)] * 3


def test_an_op_that_the_device_has_not_is_named(tf2: Any, strategy: Any) -> None:
    with strategy.scope():
        inputs = tf2.keras.Input((4,))
        model = tf2.keras.Model(inputs, tf2.keras.layers.Lambda(lambda x: tf2.unique(x[0])[0])(inputs))
        model.compile()
        with pytest.raises(tf2.errors.UnimplementedError, match=r"Unique at .*test_fit\.py:"):
            model.predict(np.ones((2, 4), np.float32), verbose=0)


def test_a_model_made_outside_of_the_scope_runs_on_the_host(tf2: Any, strategy: Any) -> None:
    from ipu_emu.tensorflow.keras.step_function import StepFunction

    outside = sequential(tf2.keras)
    with strategy.scope():
        inside = sequential(tf2.keras)
    outside.compile()
    inside.compile()
    x, _ = images()
    inside.predict(x, verbose=0)
    outside.predict(x, verbose=0)
    assert isinstance(inside.predict_function, StepFunction)
    assert not isinstance(outside.predict_function, StepFunction)


def test_an_update_of_legacy_adam_has_the_bits_of_plain_keras(tf2: Any, both: Any) -> None:
    """Its schedule, its powers, the norm that limits a gradient, and its arithmetic: from equal gradients."""
    random = np.random.default_rng(0)
    gradients = [[random.normal(size=shape).astype(np.float32) for shape in ((108, 16), (16,))] for _ in range(8)]

    def weights() -> Any:
        adam = optimizers(tf2.keras)["legacy Adam, schedule"]()
        variables = [tf2.Variable(gradient * 0.1) for gradient in gradients[0]]

        @tf2.function
        def update(*values: Any) -> None:
            adam.apply_gradients(zip(values, variables, strict=True))

        for batch in gradients[1:]:
            scoped = tf2.distribute.get_strategy()
            scoped.run(update, [tf2.constant(gradient) for gradient in batch])
        return [variable.numpy() for variable in variables]

    expected, actual = both(weights)
    for weight, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_fit_prints_the_digest_of_the_weights_where_the_launcher_is_verbose(tf2, strategy, monkeypatch, capsys):
    monkeypatch.setenv(VERBOSITY, "1")
    with strategy.scope():
        model = dense(tf2.keras)
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(*images(), batch_size=8, epochs=1, verbose=0)
    names = {f"{number:06}": value for number, value in enumerate(model.get_weights())}
    assert f"weights {digest(model)}\n" in capsys.readouterr().err
    assert digest(model) == digest(names)
