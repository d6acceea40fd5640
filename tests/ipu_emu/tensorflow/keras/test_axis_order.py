"""Axis order: filters are stored as convolutions read them, so no step transposes them, and no bit changes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu.graph import Graph

_X = np.random.default_rng(0).normal(size=(16, 6, 6, 4)).astype(np.float32)
_Y = np.random.default_rng(1).integers(0, 3, 16)

#: Layers that read filters, for images, sequences and volumes.
LAYERS: dict[str, Callable[[Any], list[Any]]] = {
    "two of images": lambda layers: [layers.Conv2D(5, 3), layers.Conv2D(6, 2)],
    "a pixel": lambda layers: [layers.Conv2D(5, 1)],
    "depthwise": lambda layers: [layers.DepthwiseConv2D(3, depth_multiplier=2)],
    "one channel each": lambda layers: [layers.DepthwiseConv2D(3)],
    "separable": lambda layers: [layers.SeparableConv2D(6, 3)],
    "transposed": lambda layers: [layers.Conv2DTranspose(5, 3, 2)],
    "groups": lambda layers: [layers.Conv2D(6, 3, groups=2)],
    "sequence": lambda layers: [layers.Reshape((36, 4)), layers.Conv1D(5, 3)],
    "sequence of one": lambda layers: [layers.Reshape((36, 4)), layers.Conv1D(1, 1)],
    "volume": lambda layers: [layers.Reshape((6, 6, 2, 2)), layers.Conv3D(3, 2)],
    "penalty": lambda layers: [layers.Conv2D(5, 3, kernel_regularizer="l2")],
    "limit": lambda layers: [layers.Conv2D(5, 3, kernel_constraint="max_norm")],
}


def fitted(tf2: Any, strategy: Any, chosen: Any, optimizer: Any, steps: int = 2, stages: bool = False) -> Any:
    """A model, and its history."""
    keras = tf2.keras
    tf2.keras.utils.set_random_seed(1)
    with strategy.scope():
        head = [keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
        model = keras.Sequential([keras.Input(_X.shape[1:]), *chosen(keras.layers), *head])
        if stages:
            model.set_pipeline_stage_assignment([0, *[1] * (len(model.layers) - 1)])
            model.set_pipelining_options(4)
        elif steps > 1:
            model.set_gradient_accumulation_options(2)
        model.compile(optimizer() if callable(optimizer) else optimizer, "sparse_categorical_crossentropy",
                      steps_per_execution=4 if stages else steps)  # fmt: skip
        batches = tf2.data.Dataset.from_tensor_slices((_X, _Y)).batch(4, drop_remainder=True)
        history = model.fit(batches, epochs=2, verbose=0).history
    return model, history


def turned(model: Any) -> list[tuple[str, str]]:
    """Kind and operand of each transposition in the program of a model, except that of its infeed."""
    (program,) = model.train_function.programs.values()
    listing = "\n".join(program.program.listings())
    matches = re.findall(r"(\w+) \S+ = Transpose\((\S+)\)", listing)
    return [(kind, operand) for kind, operand in matches if "infeed" not in operand]


def as_tensorflow_holds_them(graph: Graph, gradients: Any, fixed: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_turns_no_filter(tf2: Any, strategy: Any, optimizer: str) -> None:
    """Only the images before they are flattened, and their gradient, are transposed."""
    model, _ = fitted(tf2, strategy, LAYERS["two of images"], optimizer)
    (forward, backward) = turned(model)
    assert "BiasAdd" in forward[1]
    assert "flatten" in backward[1]


@pytest.mark.parametrize("name", LAYERS)
def test_no_bit_depends_on_how_filters_are_held(
    tf2: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from ipu_emu.tensorflow.importer import section_import

    model, history = fitted(tf2, strategy, LAYERS[name], "adam")
    left = [operand for kind, operand in turned(model) if kind == "Compute"]
    monkeypatch.setattr(section_import, "order_axes_as_read", as_tensorflow_holds_them)
    other, expected = fitted(tf2, strategy, LAYERS[name], "adam")
    assert len(left) < len(turned(other))
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-7 if name == "penalty" else 0)
    for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("kind", ["turned over", "centred"])
def test_layers_that_compute_with_their_filters(
    tf2: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Ops that depend on the order of axes read a filter in TensorFlow's order."""
    from ipu_emu.tensorflow.importer import section_import

    class Own(tf2.keras.layers.Conv2D):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            if kind == "centred":
                return tf2.nn.conv2d(x, self.kernel - tf2.reduce_mean(self.kernel, [0, 1, 2]), 1, "SAME")
            return sum(
                tf2.nn.conv2d(x, filters, 1, "SAME") for filters in (self.kernel, self.kernel * 2, self.kernel[::-1])
            )

    fits = [fitted(tf2, strategy, lambda layers: [Own(5, 3)], "adam")]
    monkeypatch.setattr(section_import, "order_axes_as_read", as_tensorflow_holds_them)
    fits.append(fitted(tf2, strategy, lambda layers: [Own(5, 3)], "adam"))
    assert fits[0][1] == fits[1][1]
    for mine, theirs in zip(fits[0][0].get_weights(), fits[1][0].get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_stages_of_a_pipeline(tf2: Any, strategy: Any, configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ipu_emu.tensorflow.importer import section_import

    configure(2)
    chosen = LAYERS["two of images"]
    model, history = fitted(tf2, strategy, chosen, "adam", stages=True)
    assert not [operand for _, operand in turned(model) if "variable" in operand]
    monkeypatch.setattr(section_import, "order_axes_as_read", as_tensorflow_holds_them)
    other, expected = fitted(tf2, strategy, chosen, "adam", stages=True)
    assert history == expected
    for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
