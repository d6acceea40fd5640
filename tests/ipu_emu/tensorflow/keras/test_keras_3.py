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


FORMS = """
import tensorflow.keras as first
from tensorflow.keras.layers import Dense
from tensorflow.python import ipu
from tensorflow import keras as second
import tensorflow as tf, keras as third
import tensorflow.keras.ipu, keras.ipu.extension
print(first is second is tf.keras, Dense is tf.keras.layers.Dense is third.layers.Dense)
print(first.ipu is third.ipu is ipu.keras, ipu.keras.PipelineStage)
"""


@pytest.mark.parametrize("options", [[], ["--tf1"]], ids=["TensorFlow 2", "TensorFlow 1"])
def test_keras_is_the_same_in_each_form_of_its_import(tensorflow: Any, tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "program.py"
    old = "import tensorflow.keras as first, tensorflow as tf\nprint(first is tf.keras, first.__name__)"
    program.write_text(old if options else FORMS)
    printed = output(start(sys.executable, "-m", "ipu_emu.compat", *options, program, folder=tmp_path))
    stage = "<class 'ipu_emu.tensorflow.keras.pipeline_stages.PipelineStage'>"
    assert printed == ("True tf_keras.api._v1.keras\n" if options else f"True True\nTrue {stage}\n")
