"""Asynchronous callbacks: they see every step while an execution runs, with the numbers of single executions."""

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from ipu_emu.engine.engine import Engine
from tests.ipu_emu.tensorflow.keras.conftest import images


@pytest.mark.parametrize("stages", [False, True])
def test_callbacks_see_every_step(tf2: Any, strategy: Any, configure: Any, stages: bool) -> None:
    keras, (x, y) = tf2.keras, images(13)
    configure(2)

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append((batch, float(logs["loss"]), int(self.model.optimizer.iterations.numpy())))

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append(batch)

    sequences = []
    for asynchronous in (False, True):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, "softmax")])
            model.set_asynchronous_callbacks(asynchronous)
            if stages:
                model.set_pipeline_stage_assignment([0, 1])
                model.set_pipelining_options(4)
            model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
            watch = Watch()
            model.fit(x[:96], y[:96], 6 if not stages else 12, shuffle=False, callbacks=[watch], verbose=0)
            model.predict(x[:96], 6 if not stages else 12, callbacks=[watch], verbose=0)
        sequences.append(watch.seen)
    single, every = sequences
    assert [step[0] for step in single[:2]] == [3, 7]
    assert [step[0] for step in every[:8]] == list(range(8))
    assert [every[3], every[7]] == single[:2]
    assert every[0][2] < every[3][2]  # the host sees the weights after an execution
    assert len({step[1] for step in every[:8]}) == 8
    assert every[8:] == list(range(8))


def test_the_outfeed_accumulates_the_metrics_of_a_batch(tf2: Any, strategy: Any, configure: Any) -> None:
    keras, (x, y) = tf2.keras, images(7)
    configure(2)

    class Last(keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="last")
            self.value = self.add_weight("value", initializer="zeros")

        def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
            self.value.assign(tf2.reduce_mean(tf2.cast(y, tf2.float32)))

        def result(self) -> Any:
            return self.value

    metrics = []
    for accumulated in (False, True):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, "softmax")])
            model.set_pipeline_stage_assignment([0, 1])
            model.set_pipelining_options(4, accumulate_outfeed=accumulated)
            model.compile("sgd", "sparse_categorical_crossentropy", [Last()], steps_per_execution=4)
            metrics.append(model.fit(x[:32], y[:32], 8, shuffle=False, verbose=0).history["last"][0])
    means = y[:32].reshape(4, 8).mean(1)
    np.testing.assert_allclose(metrics, [means[-1], means.mean()], rtol=1e-6)


@pytest.mark.parametrize("stages", [False, True])
def test_ctrl_c_ends_fit_at_once(
    tf2: Any, strategy: Any, configure: Any, stages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(2)
    keras, times, x = tf2.keras, list[float](), np.ones((8, 4), np.float32)
    running, run = threading.Event(), Engine.run

    def noted(engine: Engine, *arguments: Any) -> None:
        running.set()
        run(engine, *arguments)

    def interrupt() -> None:
        if not running.wait(100):
            return
        time.sleep(0.5)  # in the middle of the steps
        times.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(4, input_shape=(4,)), keras.layers.Dense(4)])
        if stages:
            model.set_pipeline_stage_assignment([0, 1])
            model.set_pipelining_options(4)
        steps = 4_000_000
        model.compile("sgd", "mse", steps_per_execution=steps)
        dataset = tf2.data.Dataset.from_tensors((x, x)).repeat()
        before = set(threading.enumerate())
        monkeypatch.setattr(Engine, "run", noted)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            model.fit(dataset, steps_per_epoch=steps, verbose=0)
        assert time.perf_counter() - times[0] < 1.0
        interrupter.join()
    assert not [thread.name for thread in set(threading.enumerate()) - before - {interrupter}]
