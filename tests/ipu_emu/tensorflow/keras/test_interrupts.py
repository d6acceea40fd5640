"""Ctrl-C while TensorFlow runs, which calls back into Python, and aborts the process if a callback raises."""

import signal
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

#: Modules, and the functions of TensorFlow that they call in the main thread.
_CALLS = (
    ("feeds.element_source", "gen_dataset_ops", "iterator_get_next"),
    ("variables", "gen_resource_variable_ops", "read_variable_op"),
    ("variables", "gen_resource_variable_ops", "assign_variable_op"),
)


@pytest.mark.parametrize(("module", "ops", "name"), _CALLS)
def test_a_call_of_tensorflow_ends_before_the_interrupt(
    tf2: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch, module: str, ops: str, name: str
) -> None:
    caller = import_module(f"ipu_emu.tensorflow.run.{module}")
    before, ended = getattr(caller, ops), []

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        result = getattr(before, name)(*arguments)
        ended.append(name)
        return result

    monkeypatch.setattr(caller, ops, SimpleNamespace(**{**vars(before), name: interrupted}))
    x = np.ones((8, 4), np.float32)
    with strategy.scope():
        model = tf2.keras.Sequential([tf2.keras.layers.Dense(4, input_shape=(4,), use_bias=False)])
        model.compile("sgd", "mse")
        with pytest.raises(KeyboardInterrupt):
            model.fit(tf2.data.Dataset.from_tensors((x, x)).repeat(), steps_per_epoch=4, verbose=0)
    assert ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
