"""Compiled plans: the bytes that ipu-emu memory plans are between the bounds of predictions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import System
from ipu_emu.models import Model, named
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.onnx.external_data import DataPlace
from ipu_emu.onnx.write import to_model
from ipu_emu.predict.memory import PredictedMemory
from ipu_emu.session.memory_liveness import ipu_memories

PIPELINE: dict[str, Any] = {"ipus": 4, "replicas": 4, "schedule": "grouped", "recompute": "Standard"}
STATES: dict[str, Any] = {"optimiser": "lamb", "shared": ("states",)}
#: Published configurations, with as few micro-batches accumulated as their pipelines need.
PUBLISHED: dict[str, dict[str, Any]] = {
    "ResNet-50": {"batch": 20, "accumulation": 10, "replicas": 16, "recompute": "Standard", "optimiser": "momentum"},
    "BERT-large 512 on 4": PIPELINE
    | STATES
    | {"placement": "3,7,7,7", "batch": 2, "accumulation": 10, "length": 512, "masked": 76, "off_chip": ("states",)},
    "BERT-large 512 on 8": PIPELINE
    | STATES
    | {"placement": "0,3,3,3,3,4,4,4", "ipus": 8, "replicas": 2, "batch": 2, "accumulation": 18, "length": 512},
    "BERT-base 128 on 4": PIPELINE | {"placement": "0,4,4,4", "batch": 32, "accumulation": 10, "optimiser": "lamb"},
    "GPT-2 on 4": PIPELINE | {"placement": "balanced", "accumulation": 10, "optimiser": "adam"},
    "ViT-B on 4": PIPELINE | {"placement": "balanced", "batch": 8, "accumulation": 8, "optimiser": "adam"},
}
NAMES = {
    "ResNet-50": "resnet50",
    "BERT-large": "bert-large",
    "BERT-base": "bert-base",
    "GPT-2": "gpt2",
    "ViT-B": "vit-b16",
    "Perceptron": "mlp",
}
#: Configurations in which other parts of the memory matter.
OTHERS: dict[str, dict[str, Any]] = {
    "ResNet-50, all kept": {"batch": 4, "optimiser": "momentum"},
    "ResNet-50 on 4": PIPELINE | {"placement": "balanced", "batch": 4, "accumulation": 8, "optimiser": "momentum"},
    "GPT-2 on 1": {"accumulation": 4, "recompute": "Standard"},
    "GPT-2 of one micro-batch": {},
    "GPT-2, sharded": PIPELINE
    | {"placement": "balanced", "accumulation": 10, "optimiser": "adam", "shared": ("states",)},
    "GPT-2, inference": {"training": False},
    "Perceptron, inference": {"training": False},
    "BERT-base, all kept": PIPELINE
    | {"placement": "balanced", "batch": 4, "accumulation": 10, "optimiser": "lamb", "recompute": ""},
    "BERT-base, sums off chip": PIPELINE
    | {"placement": "balanced", "batch": 4, "accumulation": 10, "optimiser": "lamb", "off_chip": ("accumulators",)},
    "BERT-base, norms recomputed": PIPELINE
    | {"placement": "balanced", "batch": 4, "accumulation": 10, "optimiser": "lamb", "recompute": "NormOnly"},
    "BERT-base, weights sharded": PIPELINE
    | {"placement": "balanced", "batch": 4, "accumulation": 10, "optimiser": "lamb", "shared": ("weights", "states")},
    "BERT-base, in turns": PIPELINE
    | {"placement": "balanced", "batch": 4, "accumulation": 10, "optimiser": "lamb", "schedule": ""},
}


def both(request: CompileRequest) -> tuple[list[int], list[PredictedMemory]]:
    """The planned bytes and the prediction of every IPU."""
    pod = System.named("pod16")
    planned = ipu_memories(request.compiled(pod).executable, pod.tiles_per_ipu)
    predicted = request.predicted(pod)
    assert predicted is not None
    return [memory.total for memory in planned], predicted.memories


@pytest.mark.parametrize("name", [*PUBLISHED, *OTHERS])
def test_a_plan_is_within_its_prediction(name: str) -> None:
    request = CompileRequest(
        next(NAMES[prefix] for prefix in NAMES if name.startswith(prefix)), **(PUBLISHED | OTHERS)[name]
    )
    for planned, said in zip(*both(request), strict=True):
        assert said.low <= planned <= said.high, f"IPU {said.ipu}"
        if planned > said.limit:
            assert said.verdict != "fits"
        if name in PUBLISHED:
            assert said.verdict == "fits"
            assert planned <= said.limit


#: Jobs with a file whose table is tied.
FILES: dict[str, dict[str, Any]] = {
    "one micro-batch": {},
    "accumulated": {"accumulation": 4, "optimiser": "adam"},
    "recomputed": {"accumulation": 4, "recompute": "Standard"},
    "inference": {"training": False},
}


def saved(folder: Path, model: Model) -> str:
    """The path of the file of ``model``; its weights take no space."""
    zeros, path, end = folder / "zeros", folder / "model.onnx", 0
    zeros.touch()
    places = {}
    for id, value in model.graph.data.items():
        places[id] = DataPlace("zeros", end, value.nbytes)
        end += value.nbytes
    os.truncate(zeros, end)
    proto = onnx.load_model_from_string(to_model(model.graph, opset=10, external=places))
    proto.graph.output.add(name=model.output)
    path.write_bytes(proto.SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A file with a table that is used for look-ups and for logits, and the id of its loss."""
    model = gpt2(batch=1, layers=1, width=1024, heads=16, length=512, vocabulary=50000, dtype=np.float16, seed=None)
    return saved(tmp_path_factory.mktemp("files"), model), model.loss


@pytest.mark.parametrize("name", FILES)
def test_the_plan_of_a_file_is_within_its_prediction(name: str, tied: tuple[str, str]) -> None:
    path, loss = tied
    ((planned,), (said,)) = both(CompileRequest(path, loss=loss, **FILES[name]))
    assert said.low <= planned <= said.high


#: Several IPUs, without a placement: model, IPUs, schedule, recomputation, micro-batch, optimiser.
PLACED = [
    ("gpt2", 2, "grouped", "Standard", 1, "adam"),
    ("gpt2", 4, "popart", "", 1, "adam"),
    ("vit-b16", 4, "", "Standard", 8, "adam"),
    ("vit-b16", 2, "popart", "", 8, "adam"),
    ("resnet50", 4, "popart", "", 4, "momentum"),
    ("resnet50", 2, "grouped", "Standard", 4, "momentum"),
    ("bert-base", 4, "grouped", "Standard", 4, "lamb"),
    ("bert-base", 2, "", "", 4, "lamb"),
]


def placed() -> list[Any]:
    """Each job by the name of its model or from a file, in turn; the other way with ``--full``."""
    return [
        pytest.param(*job, is_file, marks=() if is_file == bool(number % 2) else pytest.mark.full)
        for number, job in enumerate(PLACED)
        for is_file in (False, True)
    ]


@pytest.mark.parametrize(("name", "ipus", "schedule", "recompute", "batch", "optimiser", "is_file"), placed())
def test_a_plan_has_the_placement_of_its_prediction(
    name: str, ipus: int, schedule: str, recompute: str, batch: int, optimiser: str, is_file: bool, tmp_path: Path
) -> None:
    model, loss = name, ""
    if is_file:
        built = named(name, batch=batch)
        model, loss = saved(tmp_path, built), built.loss
    request = CompileRequest(
        model,
        loss=loss,
        batch=batch,
        ipus=ipus,
        replicas=4,
        schedule=schedule,
        recompute=recompute,
        optimiser=optimiser,
        accumulation=2 * (ipus + 1) if name in ("gpt2", "bert-base") else 2 * ipus,  # a tied head is a stage
    )
    for planned, said in zip(*both(request), strict=True):
        assert said.low <= planned <= said.high, f"IPU {said.ipu}"
