"""Replication: the same bits however replicas are spread over instances, and the numbers of one larger batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.tensorflow.keras.conftest import assert_close, images
from tests.ipu_emu.tensorflow.test_programs import output, poprun, start

PROGRAM = ROOT / "tests" / "programs" / "tensorflow" / "keras_fit.py"


def assert_equal_jobs(layouts: list[int], folder: Path) -> None:
    """The same bits, whatever number of instances share four replicas of two IPUs."""
    running = {}
    for instances in layouts:
        (folder / str(instances)).mkdir()
        running[instances] = start(*poprun(instances, 4, PROGRAM, folder / str(instances), ipus=2), folder=folder)
    by_count = {}
    for instances, process in running.items():
        output(process)
        files = [np.load(folder / str(instances) / f"{number}.npz") for number in range(instances)]
        by_count[instances] = files
        for name in files[0].files:
            if name.endswith(("loss", "accuracy")):
                joined = np.concatenate([arrays[name] for arrays in files], axis=1)
                expected = np.concatenate([arrays[name] for arrays in by_count[layouts[0]]], axis=1)
                assert len(np.unique(expected)) > 3
                np.testing.assert_array_equal(joined, expected)
            else:
                checked = files[:1] if name.endswith("moving") else files
                for arrays in checked:
                    np.testing.assert_array_equal(arrays[name], by_count[layouts[0]][0][name])


def test_fit_has_the_same_bits_in_one_and_in_two_instances(tensorflow: Any, tmp_path: Path) -> None:
    assert_equal_jobs([1, 2], tmp_path)


@pytest.mark.full
def test_fit_has_the_same_bits_in_four_instances(tensorflow: Any, tmp_path: Path) -> None:
    assert_equal_jobs([1, 4], tmp_path)


def test_replicas_train_as_one_on_a_larger_batch(tf2: Any, ipu: Any, strategy: Any, configure: Any) -> None:
    keras, (x, y) = tf2.keras, images(9)
    x, y = x[:64], y[:64]

    def fit(batch: int) -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, "softmax", kernel_regularizer="l2")])
        model.compile(
            keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", ["accuracy"], steps_per_execution=2
        )
        return model, model.fit(x, y, batch, shuffle=False, verbose=0).history

    plain, expected = fit(32)
    configure(4)
    with strategy.scope():
        model, history = fit(8)
        assert_close(model.get_weights(), plain.get_weights())
        assert abs(history["loss"][0] - expected["loss"][0]) > 1e-3
        predicted = model.predict(x, 8, verbose=0)
        with pytest.raises(ValueError, match=r"2 batches.*4 replicas"):
            model.predict(x, 32, verbose=0)
    np.testing.assert_allclose(predicted, plain.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_the_metrics_of_replicas_are_reduced_as_requested(tf2: Any, strategy: Any, configure: Any) -> None:
    keras, (x, y) = tf2.keras, images(9)
    configure(4)
    values = {}
    with strategy.scope():
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=2)
        for method in ("NONE", "LIST", "SUM", "MEAN"):
            model.set_replication_options(method)
            values[method] = model.evaluate(x[:64], y[:64], 8, verbose=0)
    losses = values["LIST"]
    assert len(np.unique(losses)) == 4
    assert values["NONE"] == losses[-1]
    np.testing.assert_allclose([values["SUM"], values["MEAN"]], [losses.sum(), losses.mean()], rtol=1e-6)
