"""Programs for Keras 3: the error names the feature that Keras 2 lacks, and what to use instead."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.ipu_emu.tensorflow.test_programs import output, start

SENTENCE = (
    r"keras\.{0} belongs to Keras 3, but models for the IPU use Keras 2; use TensorFlow's "
    r"own function instead of keras\.{0}, or leave it to the data set"
)


def test_names_of_keras_3_are_refused_in_each_form(tf2: Any) -> None:
    import keras  # type: ignore[import-not-found]

    with pytest.raises(ModuleNotFoundError, match=SENTENCE.format("ops")):
        exec("from keras import ops")
    with pytest.raises(ModuleNotFoundError, match=SENTENCE.format("ops")):
        import_module("keras.ops")
    with pytest.raises(AttributeError, match=SENTENCE.format("random")):
        _ = keras.random
    with pytest.raises(AttributeError, match="module 'keras' has no attribute 'nothing'"):
        _ = keras.nothing
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from keras import nothing")


def test_a_program_may_import_keras_before_tensorflow(tensorflow: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import keras\nimport tensorflow as tf\nprint(keras.Model is tf.keras.Model)\n")
    assert output(start(sys.executable, "-m", "ipu_emu.compat", program, folder=tmp_path)) == "True\n"
