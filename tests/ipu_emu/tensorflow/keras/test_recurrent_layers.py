"""Recurrent layers: Keras' LSTM and GRU by the device's recurrence, others unrolled; results of plain Keras."""

from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import assert_close


def tanh(x: Any) -> Any:
    """A function of the program, with the name of one of Keras."""
    return x * 0.5


def layer_cases(layers: Any) -> dict[str, Any]:
    return {
        "LSTM": lambda: layers.LSTM(5),
        "LSTM, sequences": lambda: layers.LSTM(5, return_sequences=True, go_backwards=True),
        "bidirectional GRU": lambda: layers.Bidirectional(layers.GRU(4, return_sequences=True)),
        "GRU": lambda: layers.GRU(5),
        "GRU, reset before": lambda: layers.GRU(5, reset_after=False, return_sequences=True),
        "simple": lambda: layers.SimpleRNN(5),
        "simple, own function": lambda: layers.SimpleRNN(5, activation=tanh),
        "GRU, own function": lambda: layers.GRU(5, activation=tanh, reset_after=False),
        "masked LSTM, relu": lambda: layers.LSTM(5, activation="relu"),
        "masked LSTM": lambda: layers.LSTM(5, return_sequences=True),
        "masked GRU": lambda: layers.GRU(5),
    }


@pytest.mark.parametrize("name", list(layer_cases(None)))
def test_a_recurrent_layer_equals_plain_keras(tf2: Any, both: Any, name: str) -> None:
    keras, random = tf2.keras, np.random.default_rng(0)
    x, y = random.normal(size=(16, 4, 3)).astype(np.float32), random.normal(size=(16, 2)).astype(np.float32)
    x[3, 3:] = x[7, 2:] = 0
    batches = tf2.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)

    def fit() -> Any:
        front = [keras.layers.Masking()] if name.startswith("masked") else []
        model = keras.Sequential(
            [*front, layer_cases(keras.layers)[name](), keras.layers.Flatten(), keras.layers.Dense(2)]
        )
        model.compile(keras.optimizers.SGD(0.1, 0.9), "mse", steps_per_execution=2)
        history = model.fit(batches, epochs=2, verbose=0).history
        return [history["loss"], *model.get_weights(), model.predict(x, 8, verbose=0)]

    assert_close(*both(fit))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "GRU, reset before", "SimpleRNN"])
def test_a_layer_runs_by_one_op_each_way(tf2: Any, strategy: Any, name: str) -> None:
    from ipu_emu.tensorflow.keras.step_program import StepProgram

    keras = tf2.keras
    options = {"reset_after": False} if name.endswith("before") else {}
    with strategy.scope():
        layer = getattr(keras.layers, name.split(",")[0])(5, **options)
        model = keras.Sequential([layer, keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        spec = (tf2.TensorSpec((8, 200, 3)), tf2.TensorSpec((8, 2)))
        program = StepProgram(model, "train", spec, 1, 0, model.__dict__["_ipu_extension"].options)
        (section,) = program.program.imported()
    types = [op.type for op in section.graph.ops]
    assert types.count("Recurrence") == types.count("RecurrenceGrad") == 1
    assert len(types) < 200
