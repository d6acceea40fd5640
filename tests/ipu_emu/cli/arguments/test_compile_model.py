"""CompileRequest: options of a command have the same meaning as the same options of a PopART session."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_emu import popart
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role
from ipu_emu.hardware import System
from ipu_emu.models import named
from ipu_emu.ops.communication.collective_ops import MEAN
from ipu_emu.predict.job import Job
from ipu_emu.predict.memory import state_bytes

RATE = {"defaultLearningRate": (0.1, False)}
RMSPROP = {**RATE, "defaultMomentum": (0.9, True), "defaultAlpha": (0.9, True), "defaultEps": (1e-3, True)}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("sgd", popart.SGD(RATE)),
        ("momentum", popart.SGD({**RATE, "defaultMomentum": (0.9, True)})),
        ("rmsprop", popart.Adaptive(RMSPROP, accl3_type=popart.DataType.FLOAT)),
        ("adam", popart.Adam(RATE)),
        ("adamw", popart.Adam({**RATE, "defaultWeightDecay": (0.01, True)})),
        ("lamb", popart.Adam(RATE, mode=popart.AdamMode.Lamb)),
    ],
)
def test_optimisers_have_the_defaults_of_popart(name: str, same: Any) -> None:
    assert OPTIMISERS[name].rule == same.plan


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schedule": "popart"}, "a pipeline needs more than one IPU per replica; add --ipus"),
        (
            {"schedule": "grouped", "ipus": 2},
            "the grouped schedule trains with gradient accumulation only; add --accumulation, or use "
            "--schedule popart",
        ),
    ],
)
def test_an_invalid_pipeline_is_refused_in_words_of_the_command(options: dict[str, Any], text: str) -> None:
    with pytest.raises(EmulatorError) as error:
        CompileRequest("mlp", **options).compiled_until("prune")
    assert error.value.args[0] == text


GROUPED = {"ipus": 4, "replicas": 4, "accumulation": 20, "schedule": "grouped", "recompute": "Standard"}
#: Published configurations that ran on real IPUs, the fullest of which was nearly full.
RAN: dict[str, dict[str, Any]] = {
    "bert-base": {"batch": 32, "placement": "0,4,4,4", "optimiser": "lamb"},
    "gpt2": {"batch": 1, "placement": "balanced", "optimiser": "adam"},
}


@pytest.mark.parametrize("model", RAN)
def test_published_configurations_fit_as_predicted(model: str) -> None:
    pod = System.named("pod16")
    request = CompileRequest(model, **GROUPED, **RAN[model])
    assert request.compiled(pod).need.fits
    predicted = request.predicted(pod)
    assert predicted is not None
    assert predicted.verdict == "fits"


def test_bert_makes_logits_of_the_positions_of_which_predictions_count_them() -> None:
    for sizes, rows in (({}, 20), ({"length": 64}, 10), ({"length": 512, "masked": 76}, 76)):
        request = CompileRequest("bert-base", batch=2, training=False, **sizes)
        graph = request.compiled_until("prune").graph
        assert ("rows", (2 * rows,)) in [(tensor.id, tensor.shape) for tensor in graph.tensors.values()]
        predicted = request.predicted(System.named("pod16"))
        assert predicted is not None
        words = next(block for block in predicted.job.network.blocks if block.name == "words")
        assert words.product == pytest.approx(2 * rows * 768 * (30522 + 768))


def test_sizes_that_a_model_has_not_are_refused() -> None:
    for model, sizes, text in (
        ("resnet50", {"length": 64}, "resnet50 has no length to set"),
        ("gpt2", {"masked": 4}, "gpt2 has no masked to set"),
        ("bert-base", {"length": 64, "masked": 65}, "65 masked positions of 64 are not possible; use at most 64"),
        ("bert-base", {"masked": 129}, "129 masked positions of 128 are not possible; use at most 128"),
        ("bert-base", {"ipus": 4, "placement": "3,3"}, "layers are given for 2 IPUs; a replica has 4"),
        ("model.onnx", {"length": 64}, "model.onnx has sizes of its own; leave out --length and --masked"),
    ):
        with pytest.raises(EmulatorError) as error:
            CompileRequest(model, **sizes).compiled_until("prune")
        assert error.value.args[0].startswith(text)


def test_shared_batch_statistics_are_collectives_and_an_invalid_span_is_refused() -> None:
    counts = {}
    for span in (1, 2):
        state = CompileRequest("resnet8", replicas=4, bn_span=span).compiled_until("check-gradients")
        counts[span] = sum(op.type == MEAN for op in state.graph.ops)
    norms = sum(op.type == "BatchNormalization" for op in named("resnet8").graph.ops)
    assert (counts[1], counts[2]) == (0, 2 * norms)  # one message in each direction
    for model, span, text in (
        ("resnet8", 3, "--bn-span 3 does not divide 4 replicas; use a divisor"),
        ("mlp", 2, "mlp has no batch normalisation; leave out --bn-span"),
    ):
        with pytest.raises(EmulatorError) as error:
            CompileRequest(model, replicas=4, bn_span=span).compiled_until("check-gradients")
        assert error.value.args[0] == text


def test_lars_keeps_the_states_of_momentum() -> None:
    states = {}
    for name in ("momentum", "lars"):
        graph = CompileRequest("resnet8", optimiser=name).compiled_until("check-gradients").graph
        states[name] = [(tensor.id, tensor.shape) for tensor in graph.with_role(Role.STATE)]
    assert states["lars"] == states["momentum"] != []


@pytest.mark.parametrize("name", OPTIMISERS)
def test_states_have_the_bytes_of_predictions(name: str) -> None:
    graph = CompileRequest("resnet8", optimiser=name).compiled_until("check-gradients").graph
    nbytes = sum(tensor.nbytes for tensor in graph.with_role(Role.STATE) if not tensor.id.startswith("Step___"))
    job = Job("resnet8", System.named("pod16"), optimiser=name)
    assert nbytes == job.network.trained * state_bytes(job)
