"""Compiled plans: what ipu-emu memory plans lies between the least and the most that predictions say."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest

from ipu_emu.cli.commands.compile_model import CompileRequest
from ipu_emu.graph.external_data import contiguous
from ipu_emu.hardware import System
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.predict.memory import IpuMemory
from ipu_emu.program.memory_liveness import ipu_memories

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
#: Configurations in which something else decides.
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


def both(asked: CompileRequest) -> tuple[list[int], list[IpuMemory]]:
    """The planned bytes and the prediction of every IPU."""
    pod = System.named("pod16")
    planned = ipu_memories(asked.compiled(pod).executable, pod.tiles_per_ipu)
    predicted = asked.predicted(pod)
    assert predicted is not None
    return [each.total for each in planned], predicted.memories


@pytest.mark.parametrize("name", [*PUBLISHED, *OTHERS])
def test_a_plan_lies_within_its_prediction(name: str) -> None:
    asked = CompileRequest(next(NAMES[each] for each in NAMES if name.startswith(each)), **(PUBLISHED | OTHERS)[name])
    for planned, said in zip(*both(asked), strict=True):
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


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A file whose table is looked up in and makes logits, and the id of its loss; its weights take no space."""
    folder = tmp_path_factory.mktemp("files")
    model = gpt2(batch=1, layers=1, width=1024, heads=16, length=512, vocabulary=50000, dtype=np.float16, seed=None)
    data, zeros, path = model.graph.data, folder / "zeros", folder / "tied.onnx"
    zeros.touch()
    os.truncate(zeros, sum(value.nbytes for value in data.values()))
    proto = onnx.load_model_from_string(model.serialised(contiguous(data, tuple(data), str(zeros))))
    proto.graph.output.add(name=model.output)
    path.write_bytes(proto.SerializeToString())
    return str(path), model.loss


@pytest.mark.parametrize("name", FILES)
def test_the_plan_of_a_file_lies_within_its_prediction(name: str, tied: tuple[str, str]) -> None:
    path, loss = tied
    ((planned,), (said,)) = both(CompileRequest(path, loss=loss, **FILES[name]))
    assert said.low <= planned <= said.high
