"""Listings: the published programs with Keras run unchanged, alone and in two instances."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.test_programs import EXAMPLES, output, poprun, start

LISTINGS = ("inference_keras_model", "inference_keras_sequential", "inference_keras_split")
TRAINING = ("training_keras_model", "training_keras_sequential")


@pytest.mark.parametrize("name", LISTINGS)
def test_inference_predicts_what_the_model_computes(tf2: Any, strategy: Any, name: str, capsys: Any) -> None:
    variables = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert "2/2 [====" in capsys.readouterr().out
    (batch,) = variables["dataset"].take(1)
    with variables["strategy"].scope():
        predictions = variables["model"].predict(variables["dataset"], steps=2, verbose=0)
    assert predictions.shape == (4, 128, 128, 128)
    np.testing.assert_allclose(predictions[:2], variables["model"](batch), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(predictions[:2], predictions[2:])


@pytest.mark.parametrize("name", TRAINING)
def test_training_updates_the_weights_sixteen_times(tf2: Any, strategy: Any, name: str, capsys: Any) -> None:
    variables = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert "128/128 [====" in capsys.readouterr().out
    assert variables["model"].optimizer.iterations.numpy() == 16


def test_a_listing_runs_in_two_instances(tensorflow: Any, tmp_path: Path) -> None:
    printed = output(start(*poprun(2, 2, EXAMPLES / "training_keras_model.py"), folder=tmp_path))
    assert printed.count("128/128 [====") == 2


@pytest.mark.full
@pytest.mark.parametrize("name", [*LISTINGS, TRAINING[1]])
def test_every_listing_runs_in_two_instances(tensorflow: Any, tmp_path: Path, name: str) -> None:
    output(start(*poprun(2, 2, EXAMPLES / f"{name}.py"), folder=tmp_path))
