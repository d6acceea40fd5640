"""ipu_tensorflow_addons: layers compute the same as those of Keras, and optimizers follow their formulas."""

from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import assert_close, op_by_op


@pytest.fixture
def addons(tensorflow: Any) -> Any:
    import ipu_tensorflow_addons.keras as found  # type: ignore[import-not-found]

    return found


def fitted(tf: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    model.compile(optimizer, "mse")
    losses = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [losses, *model.get_weights(), model.predict(x, verbose=0)]


def test_layers_are_those_of_keras_with_more_arguments(tf2: Any, strategy: Any, addons: Any) -> None:
    keras, own, random = tf2.keras, addons.layers, np.random.default_rng(0)

    def model(layers: Any, addon: bool) -> Any:
        more: dict[str, Any] = {"partials_dtype": tf2.float32, "seed": 3} if addon else {}
        serial = {"serialization_factor": 2, "serialization_dimension": "kernel_rows"} if addon else {}
        dense = layers.SerialDense if addon else layers.Dense
        stack = [layers.Embedding(20, 6, **({"serialization_factor": 4} if addon else {}))]
        stack += [layers.LSTM(5, return_sequences=True, **more), layers.LayerNormalization()]
        stack += [layers.GRU(4, reset_after=True, **more), layers.Dropout(0.0)]
        stack += [layers.RecomputationCheckpoint(), layers.AssumeEqualAcrossReplicas()] if addon else []
        return keras.Sequential([*stack, dense(4, activation="tanh", **serial)])

    x, y = random.integers(0, 20, (16, 7)), random.normal(size=(16, 4)).astype(np.float32)
    tf2.keras.utils.set_random_seed(3)
    with op_by_op(tf2):
        expected = fitted(tf2, model(keras.layers, False), "sgd", x, y)
    tf2.keras.utils.set_random_seed(3)
    with strategy.scope():
        net = model(own, True)
        assert_close(fitted(tf2, net, "sgd", x, y), expected)
        again = keras.Sequential.from_config(net.get_config(), {name: getattr(own, name) for name in own.__all__})
    assert [layer.get_config() for layer in again.layers] == [layer.get_config() for layer in net.layers]


@pytest.mark.parametrize("strided", [True, False])
def test_group_normalization_by_its_formula(tf2: Any, strategy: Any, addons: Any, strided: bool) -> None:
    x = np.random.default_rng(0).normal(2, 3, (4, 5, 5, 6)).astype(np.float32)
    groups = x.reshape(4, 25, 2, 3) if strided else x.reshape(4, 25, 3, 2).transpose(0, 1, 3, 2)
    mean, deviation = (getattr(groups, statistic)((1, 2), keepdims=True) for statistic in ("mean", "std"))
    normal = (groups - mean) / deviation
    expected = (normal if strided else normal.transpose(0, 1, 3, 2)).reshape(x.shape)
    with strategy.scope():
        layer = addons.layers.GroupNormalization(3, strided_channel_grouping=strided)
        model = tf2.keras.Sequential([layer, addons.layers.InstanceNormalization(center=False, scale=False)])
        output = tf2.keras.Sequential([layer]).predict(x, verbose=0)
        both = model.predict(x, verbose=0)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(both.mean((1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(both.std((1, 2)), 1, atol=1e-3)


@pytest.mark.parametrize("name", ["groups", "strided groups", "instances"])
def test_group_normalization_trains_as_64_bits_do(tf2: Any, strategy: Any, addons: Any, name: str) -> None:
    keras, random, start = tf2.keras, np.random.default_rng(0), list[Any]()
    x, y = random.normal(2, 3, (32, 6, 6, 4)).astype(np.float32), random.integers(0, 5, 32)

    def own() -> Any:
        if name == "instances":
            return addons.layers.InstanceNormalization(epsilon=1e-3)
        return addons.layers.GroupNormalization(2, strided_channel_grouping=name == "strided groups", epsilon=1e-3)

    def trained(layer: Any) -> list[Any]:
        head = [keras.layers.Flatten(), keras.layers.Dense(5, "softmax")]
        model = keras.Sequential([keras.Input((6, 6, 4)), keras.layers.Conv2D(8, 3), layer, *head])
        start.append(model.get_weights())
        model.set_weights(start[0])
        model.compile(keras.optimizers.SGD(0.1, 0.9), "sparse_categorical_crossentropy")
        losses = model.fit(x, y, 8, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [*model.get_weights(), losses]

    with strategy.scope():
        weights = trained(own())
    keras.backend.set_floatx("float64")
    try:
        with op_by_op(tf2):
            assert_close(weights, trained(own()))
            if name != "strided groups":
                assert_close(weights, trained(keras.layers.GroupNormalization(8 if name == "instances" else 2)))
    finally:
        keras.backend.set_floatx("float32")


@pytest.mark.parametrize("name", ["SGD", "Nesterov", "Adam", "AMSGrad"])
def test_optimizers_are_those_of_keras(tf2: Any, both: Any, addons: Any, name: str) -> None:
    keras, own = tf2.keras.optimizers, addons.optimizers
    pairs = {
        "SGD": (keras.SGD(0.1), own.SGDIpuOptimizer(0.1)),
        "Nesterov": (keras.SGD(0.1, 0.9, True), own.SGDIpuOptimizer(0.1, 0.9, True)),
        "Adam": (keras.Adam(0.01), own.AdamIpuOptimizer(0.01)),
        "AMSGrad": (keras.Adam(0.01, amsgrad=True), own.AdamIpuOptimizer(0.01, amsgrad=True)),
    }
    random, optimizers = np.random.default_rng(0), iter(pairs[name])
    x, y = random.normal(size=(32, 4)).astype(np.float32), random.normal(size=(32, 2)).astype(np.float32)

    def fit() -> Any:
        layers = [tf2.keras.layers.Dense(6, "tanh", input_shape=(4,)), tf2.keras.layers.Dense(2)]
        return fitted(tf2, tf2.keras.Sequential(layers), next(optimizers), x, y)

    expected, actual = both(fit)
    assert_close(actual, expected)


def test_lamb_by_its_formula_with_states_of_half_width(tf2: Any, strategy: Any, addons: Any) -> None:
    x, y = np.eye(4, dtype=np.float32)[:, :3], np.ones((4, 1), np.float32)
    start = np.array([[0.5], [-1.0], [2.0]], np.float32)
    w, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in (1, 2, 3):
        gradient = x.T @ (x @ w - y) * 2 / 4
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        update = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + 0.01 * w
        w = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(update) * update
    for kind, tolerance in ((None, 1e-5), (tf2.float16, 2e-3)):
        with strategy.scope():
            model = tf2.keras.Sequential([tf2.keras.layers.Dense(1, use_bias=False, input_shape=(3,))])
            model.set_weights([start])
            optimizer = addons.optimizers.LAMBIpuOptimizer(0.1, weight_decay_rate=0.01, m_dtype=kind)
            model.compile(optimizer, "mse")
            model.fit(x, y, batch_size=4, epochs=3, verbose=0)
        np.testing.assert_allclose(model.get_weights()[0], w, rtol=tolerance)
        assert [variable.dtype for variable in optimizer.variables if "/m/" in variable.name] == [kind or tf2.float32]


def test_mistakes_with_addons(tf2: Any, addons: Any) -> None:
    layers = addons.layers
    with pytest.raises(ValueError, match=r"serialization_dimension.*'rows'.*input_columns"):
        layers.SerialDense(4, 2, "rows")
    with pytest.raises(ValueError, match="serialization_factor has to be at least 1"):
        layers.SerialDense(4, 0, "kernel_rows")
    with pytest.raises(ValueError, match=r"5 channels.*2 groups"):
        layers.GroupNormalization()(tf2.zeros((2, 5)))
    with pytest.raises(ValueError, match="input_dim 0"):
        layers.Embedding(0, 4)
    with pytest.raises(ValueError, match=r"`momentum` must be between \[0, 1\]"):
        addons.optimizers.SGDIpuOptimizer(momentum=2.0)
    with pytest.raises(ModuleNotFoundError, match=r"ipu_tensorflow_addons\.nothing"):
        import ipu_tensorflow_addons.nothing  # type: ignore[import-not-found] # noqa: F401
