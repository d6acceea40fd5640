"""Inventory of the arguments of Keras' methods of models: each has the effect of plain Keras, or is refused.

The rows are the parameters of the signatures, so that a new one without a value in a table here fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.helpers.inventory_page import assert_counts
from tests.ipu_emu.tensorflow.keras.argument_rows import assert_rows, parameters, rows_of

_RANDOM = np.random.default_rng(0)
X, Y = _RANDOM.normal(size=(12, 4)).astype(np.float32), _RANDOM.integers(0, 3, 12)
WEIGHTS = np.linspace(0, 2, 12).astype(np.float32)
_VALIDATED = {"validation_data": (X[:8], Y[:8])}
_OF_ANY = {"x": X[::-1], "y": Y[::-1], "sample_weight": WEIGHTS}
_OF_BATCHES = _OF_ANY | {"reset_metrics": False, "return_dict": True}
_SIZES = ({"steps": 1, "batch_size": 3}, {"steps": 1})
_OF_STEPS: dict[str, Any] = {"callbacks": True, "verbose": 2, "steps": 2, "batch_size": _SIZES}
#: Values of the arguments of the methods of a model, or rows.
OF_METHODS: dict[str, dict[str, Any]] = {
    "compile": {
        "optimizer": "adam", "loss": "mse", "metrics": ["mae"], "loss_weights": [3.0], "weighted_metrics": ["mae"],
        "steps_per_execution": 3,
    },
    "fit": _OF_ANY | {
        "batch_size": 3, "epochs": 2, "verbose": 2, "callbacks": True, "validation_split": 0.25,
        "validation_data": (X[:8], Y[:8]), "shuffle": True, "steps_per_epoch": 2, "class_weight": {0: 1, 1: 3, 2: 0},
        "initial_epoch": ({"epochs": 3, "initial_epoch": 1}, {"epochs": 3}),
        "validation_steps": (_VALIDATED | {"validation_steps": 1}, _VALIDATED),
        "validation_batch_size": (
            _VALIDATED | {"validation_steps": 1, "validation_batch_size": 2}, _VALIDATED | {"validation_steps": 1},
        ),
        "validation_freq": (_VALIDATED | {"epochs": 2, "validation_freq": 2}, _VALIDATED | {"epochs": 2}),
    },
    "evaluate": _OF_ANY | _OF_STEPS | {"return_dict": True},
    "predict": {"x": X[::-1]} | _OF_STEPS,
    "train_on_batch": _OF_BATCHES | {"class_weight": {0: 1, 1: 3, 2: 0}},
    "test_on_batch": _OF_BATCHES,
    "predict_on_batch": {"x": X[::-1]},
}  # fmt: skip
_OF_WORKERS = {"max_queue_size": 3, "workers": 2, "use_multiprocessing": True}
#: Arguments that make no difference in plain Keras either.
EQUAL: dict[str, dict[str, Any]] = {
    "compile": {"jit_compile": False, "pss_evaluation_shards": 2},
    **dict.fromkeys(("fit", "evaluate", "predict"), _OF_WORKERS),
}
#: Arguments that are refused, by methods.
REFUSED = {"compile": {"run_eagerly"}}


@pytest.mark.parametrize("method", OF_METHODS)
def test_an_argument_of_a_method_has_the_effect_of_plain_keras(
    tf2: Any, both: Any, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keras = tf2.keras
    names = parameters(getattr(keras.Model, method))
    equal, refused = EQUAL.get(method, {}), REFUSED.get(method, set())
    rows = rows_of(OF_METHODS[method], names)
    assert set(names) == rows.keys() | equal.keys() | refused

    def outcomes(many: list[dict[str, Any]]) -> list[Any]:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dense(3, "softmax", input_shape=(4,))])
        start = model.get_weights()
        return [list(called(keras, model, start, method, arguments, capsys)) for arguments in many]

    assert_rows(both, rows, equal, outcomes)


def called(
    keras: Any, model: Any, start: Any, method: str, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Yield what a method returns and prints, how many batches callbacks see, and the weights after it."""
    keras.utils.set_random_seed(3)
    seen: list[int] = []
    ends = ("on_train_batch_end", "on_test_batch_end", "on_predict_batch_end")
    log = keras.callbacks.LambdaCallback(**dict.fromkeys(ends, lambda batch, logs: seen.append(batch)))
    settings = {"optimizer": keras.optimizers.SGD(0.5), "loss": "sparse_categorical_crossentropy"}
    if method == "compile" or getattr(model, "optimizer", None) is None:  # another call would make programs anew
        model.compile(**settings | {"metrics": ["accuracy"]} | (arguments if method == "compile" else {}))
    model.set_weights(start)
    model.reset_metrics()
    function = getattr(model, "fit" if method == "compile" else method)
    usual = {"x": X, "y": Y, "batch_size": 4, "verbose": 0, "shuffle": False}
    used = {name: value for name, value in usual.items() if name in parameters(function)}
    used |= {"callbacks": True} if method == "compile" else arguments
    used |= {"callbacks": [log]} if "callbacks" in used else {}
    if "reset_metrics" in used:
        function(X[:4], Y[:4])
    result = function(**used)
    yield isinstance(result, dict)
    yield from leaves(getattr(result, "history", result))
    yield from model.get_weights()
    yield from (bool(capsys.readouterr().out), len(seen))


def leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, list | tuple) else [result]


def test_the_count_of_the_arguments(tf2: Any) -> None:
    count = sum(len(parameters(getattr(tf2.keras.Model, method))) for method in OF_METHODS)
    refused = sum(map(len, REFUSED.values()))
    assert_counts("arguments of Keras' methods of models", count - refused, refused, 0)
