"""Models: parameter counts of the literature, and each model learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.errors import EmulatorError
from ipu_emu.models import Model, ModelSize, named
from tests.ipu_emu.helpers.sessions import options


def layer(width: int) -> int:
    return 4 * (width**2 + width) + 2 * width + (4 * width**2 + 4 * width) + (4 * width**2 + width) + 2 * width


def language(width: int, layers: int) -> int:
    return (50257 + 1024) * width + layers * layer(width) + 2 * width


#: Trained parameters; those that only pre-training needs; statistics.
PARAMETERS = {
    "resnet50": (25_557_032, 0, 25_610_152 - 25_557_032),
    "bert-base": (109_482_240, 622_650 + 1_538, 0),
    "bert-large": ((30522 + 512 + 2) * 1024 + 2048 + 24 * layer(1024) + 1024**2 + 1024, None, 0),
    "gpt2": (124_439_808, 0, 0),
    "gpt2-medium": (language(1024, 24), 0, 0),
    "gpt2-large": (language(1280, 36), 0, 0),
    "gpt2-xl": (1_557_611_200, 0, 0),
    "vit-b16": (86_567_656, 0, 0),
    "vit-l16": (304_326_632, 0, 0),
    "mlp": (784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10, 0, 0),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    counts = ModelSize.of(named(name))
    trained, heads, statistics = PARAMETERS[name]
    assert (counts.parameters, counts.statistics) == (trained, statistics)
    assert heads in (None, counts.heads)
    assert counts.parameter_bytes == 2 * (counts.parameters + counts.heads + counts.statistics)


def test_another_vocabulary_and_the_shape_of_gpt_3() -> None:
    assert ModelSize.of(models.bert(batch=1, vocabulary=30912, seed=None)).parameters == 109_781_760
    shape = {"layers": 32, "width": 2560, "heads": 32, "length": 8, "context": 2048}
    assert ModelSize.of(models.gpt2(batch=1, seed=None, **shape)).parameters == 2_651_553_280


def test_operations_and_activations_are_those_of_a_sample() -> None:
    """ResNet-50 is known for 4.1e9 multiplications of 224 x 224 images; a GEMM of the MLP counts 2 n p + p."""
    counts = ModelSize.of(named("resnet50"))
    assert counts.flops == pytest.approx(2 * 4.1e9, rel=0.02)
    single, eight = (ModelSize.of(named("mlp", batch=batch, dtype=np.float32)) for batch in (1, 8))
    assert single.flops == pytest.approx(eight.flops, rel=0.01)
    outputs = 512 + 512 + 512 + 512 + 10 + 10 + 1
    assert 4 * (outputs - 1) <= eight.activations <= single.activations == 4 * outputs


SMALL: dict[str, Callable[..., Model]] = {
    "bert": lambda **k: models.bert(layers=2, width=16, heads=2, length=6, context=8, vocabulary=11, **k),
    "gpt2": lambda **k: models.gpt2(layers=2, width=16, heads=2, length=6, context=8, vocabulary=11, **k),
    "vit": lambda **k: models.vit(layers=2, width=16, heads=2, size=8, patch=4, classes=3, **k),
}


def data(model: Model, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    inputs = (model.graph.tensor(id) for id in (model.data, model.labels, *model.others))
    return {
        tensor.id: random.integers(0, 2, tensor.shape).astype(np.int32)
        if tensor.dtype.name == "INT32"
        else random.standard_normal(tensor.shape).astype(np.float32)
        for tensor in inputs
    }


@pytest.mark.parametrize("name", SMALL)
def test_it_learns_a_batch_by_heart(name: str) -> None:
    model = SMALL[name](batch=2, seed=1)
    flow = popart.DataFlow(1, [model.loss])
    session = popart.TrainingSession(
        model.proto,
        flow,
        model.loss,
        popart.Adam({"defaultLearningRate": (0.01, False)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472}),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    losses = []
    for _ in range(30):
        session.run(popart.PyStepIO(data(model), anchors))
        losses.append(float(anchors[model.loss]))
    assert losses[-1] < 0.2 * losses[0]


def test_a_causal_model_ignores_later_tokens() -> None:
    model = SMALL["gpt2"](batch=1, seed=1)
    builder = popart.Builder(model.proto)
    outputs = []
    for last in (0, 1):
        tokens = data(model)
        tokens[model.data][0, -1] = last
        session = popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [model.output]),
            popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472}),
        )
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO(tokens, anchors))
        outputs.append(anchors[model.output].reshape(6, 11).copy())
    np.testing.assert_array_equal(outputs[0][:-1], outputs[1][:-1])
    assert np.abs(outputs[0][-1] - outputs[1][-1]).max() > 1e-3


def test_names_that_there_are_not() -> None:
    with pytest.raises(EmulatorError, match=r"'resnet51'.*mlp, resnet8, .*'resnet50'"):
        named("resnet51")
