"""Step programs: values that a training step of a Keras model computes only once."""

import re
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def listing(tf2: Any, strategy: Any) -> str:
    """The program of a step of a model of two convolutions, with Adam."""
    layers = tf2.keras.layers
    with strategy.scope():
        model = tf2.keras.Sequential(
            [layers.Conv2D(4, 3), layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(3, "softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(np.ones((4, 8, 8, 3), np.float32), np.zeros(4, np.int32), batch_size=4, verbose=0)
    (program,) = model.train_function.programs.values()
    return "\n".join(program.program.listings())


def test_the_rate_of_an_update_is_computed_once_for_all_variables(listing: str) -> None:
    assert len(re.findall(r"WeightUpdate .* = Pow\(", listing)) == 2  # of the two moments
    assert len(re.findall(r"WeightUpdate assign/", listing)) >= 6


def test_images_are_turned_once_for_both_passes(listing: str) -> None:
    """The gradient of a mean over pixels needs no transposition."""
    turned = re.findall(r"Compute (\S+) = Transpose\((\S+)\)", listing)
    assert [source for _, source in turned if source.startswith("infeed")] == ["infeed/0/0"]
    assert not [name for name, _ in turned if "global_average_pooling2d" in name]
