"""Inventory of the arguments of Keras' optimizers: each changes a weight as it does in plain Keras.

The rows are the parameters of the signatures, so that a new one without a value in the table here fails.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest

from tests.helpers.inventory_page import assert_counts
from tests.ipu_emu.tensorflow.keras.argument_rows import assert_rows, only, parameters, rows_of

OPTIMIZERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD"),
)
#: Arguments that make no difference in plain Keras either. A relative step bounds the rate by 1 / sqrt(step), above
#: that of the test.
EQUAL = {"jit_compile": False, "name": "other", "relative_step": False}
#: Values of the arguments of optimizers, which have many in common.
OF_OPTIMIZERS: dict[str, Any] = {
    "learning_rate": 0.5, "momentum": 0.5, "beta_1": 0.999, "beta_2": 0.4, "epsilon": 0.2, "amsgrad": True,
    "rho": 0.3, "centered": True, "initial_accumulator_value": 0.7, "learning_rate_power": -0.2, "beta": 0.5,
    "l1_regularization_strength": 0.2, "l2_regularization_strength": 0.2, "l2_shrinkage_regularization_strength": 0.2,
    "beta_2_decay": -0.3, "epsilon_1": 0.5, "epsilon_2": 5.0, "clip_threshold": 0.1,
    "weight_decay": 0.3, "clipnorm": 0.1, "clipvalue": 0.1, "global_clipnorm": 0.1,
    "nesterov": ({"nesterov": True, "momentum": 0.5}, {"momentum": 0.5}),
    "adaptive_epsilon": ({"adaptive_epsilon": True, "epsilon": 0.1}, {"epsilon": 0.1}),
    "use_ema": ({"use_ema": True, "ema_overwrite_frequency": 2},),
    "ema_momentum": (
        {"use_ema": True, "ema_overwrite_frequency": 2, "ema_momentum": 0.3},
        {"use_ema": True, "ema_overwrite_frequency": 2},
    ),
    "ema_overwrite_frequency": ({"use_ema": True, "ema_overwrite_frequency": 1}, {"use_ema": True}),
}  # fmt: skip


def optimizers(keras: Any) -> list[Any]:
    base = keras.optimizers.Optimizer
    kinds = {kind for kind in vars(keras.optimizers).values() if inspect.isclass(kind) and issubclass(kind, base)}
    return sorted(kinds - {base}, key=lambda kind: kind.__name__)


def own_parameters(keras: Any, kind: Any) -> list[str]:
    """The parameters of an optimizer; of those that all have only SGD's."""
    shared = parameters(keras.optimizers.Optimizer)
    return [name for name in parameters(kind) if kind is keras.optimizers.SGD or name not in shared]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_argument_of_an_optimizer_has_the_effect_of_plain_keras(tf2: Any, both: Any, name: str) -> None:
    kind = getattr(tf2.keras.optimizers, name)
    own = own_parameters(tf2.keras, kind)
    rows, equal = rows_of(OF_OPTIMIZERS, own), only(EQUAL, own)
    assert set(own) == rows.keys() | equal.keys()
    assert_rows(both, rows, equal, partial(updated, tf2, kind))


def updated(tf: Any, kind: Any, many: list[dict[str, Any]]) -> list[Any]:
    """The variables that optimizers with these arguments have updated in one program, three times.

    The gradients change their signs, of which some optimizers use no more.
    """
    optimizers = [kind(**{"learning_rate": 0.1} | arguments) for arguments in many]
    factor = tf.Variable(1.0)
    variables = [tf.Variable([[0.5, -1.0, 2.0], [0.1, 0.0, -0.2]]) for _ in many]
    for optimizer, variable in zip(optimizers, variables, strict=True):
        optimizer.build([variable])

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> None:
        for optimizer, variable in zip(optimizers, variables, strict=True):
            optimizer.apply_gradients([((variable * 0.5 - [0.3, 0.1, -0.2]) * factor, variable)])
        factor.assign(-0.7 * factor)

    for _ in range(3):
        tf.distribute.get_strategy().run(step)
    return [[variable.numpy()] for variable in variables]


def test_the_count_of_the_arguments(tf2: Any) -> None:
    keras = tf2.keras
    assert [kind.__name__ for kind in optimizers(keras)] == list(OPTIMIZERS)
    count = sum(len(own_parameters(keras, kind)) for kind in optimizers(keras))
    assert_counts("arguments of Keras' optimizers", count, 0, 0)
