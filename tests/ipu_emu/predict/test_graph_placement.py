"""Graph placement: layers of named models on the IPUs that --placement names, for the compiler."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.compiler.annotations import IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role
from ipu_emu.hardware import System
from ipu_emu.models import CATALOGUE, named
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.predict.graph_placement import op_places
from ipu_emu.predict.job import Job
from tests.ipu_emu.helpers.commands import printed

POD = System.named("pod16")


@pytest.mark.parametrize("model", [name for name in CATALOGUE if name not in ("mlp", "gpt2-large", "gpt2-xl")])
def test_every_op_has_a_place_and_reads_from_earlier_stages(model: str) -> None:
    built = named(model)
    places = op_places(built.graph, Job(model, POD, ipus=2, recompute=True))
    tensor_places: dict[str, tuple[int, int]] = {}
    for op in built.graph.ops:
        place = places[op.outputs[0]]
        assert all(tensor_places[id][1] <= place[1] for id in op.inputs if id in tensor_places)
        tensor_places |= dict.fromkeys(op.outputs, place)
    assert {ipu for ipu, _ in places.values()} == {0, 1}


def test_layers_are_on_the_requested_ipus_and_tied_logits_with_their_table() -> None:
    request = CompileRequest(
        "bert-base", batch=1, ipus=4, accumulation=16, schedule="popart", recompute="Standard", placement="0,4,4,4"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table on two IPUs would be copied for every micro-batch
        graph = request.compiled_until("assign-ipus").graph
    homes = {id: op.place.ipu for op in graph.ops for id in op.inputs if id}
    assert [homes[f"layer{layer}/attention/q/weights"] for layer in range(12)] == [1] * 4 + [2] * 4 + [3] * 4
    assert homes["tokens"] == homes["heads/words/weights"] == 0
    assert homes["pooler/weights"] == 3
    stages = {op.place.stage for op in graph.ops if "heads/words/weights" in op.inputs}
    assert stages == {4}


def test_bert_large_is_balanced_on_four_ipus() -> None:
    request = CompileRequest(
        "bert-large",
        batch=2,
        ipus=4,
        replicas=4,
        accumulation=16,
        schedule="popart",
        recompute="Standard",
        optimiser="lamb",
        off_chip=("states",),
        shared=("states",),
        placement="3,7,7,7",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = request.compiled_until("assign-ipus").graph
    homes = {id: op.place.ipu for op in graph.ops for id in op.inputs if id}
    ends = (2, 3, 9, 10, 16, 17, 23)
    assert [homes[f"layer{layer}/feed_forward/up/weights"] for layer in ends] == [0, 1, 1, 2, 2, 3, 3]


def test_a_file_is_divided_where_little_passes_and_its_logits_are_with_their_table(tmp_path: Path) -> None:
    model = gpt2(batch=1, layers=4, width=32, heads=2, length=8, vocabulary=64, dtype=np.float16, seed=None)
    path = tmp_path / "gpt2.onnx"
    path.write_bytes(model.proto)
    request = CompileRequest(
        str(path), loss=model.loss, ipus=4, accumulation=10, schedule="grouped", recompute="Standard"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table on two IPUs would be copied for every micro-batch
        graph = request.compiled_until("assign-ipus").graph
    homes = {id: op.place for op in graph.ops for id in op.inputs if id}
    predicted = request.predicted(POD)
    assert predicted is not None
    assert len(predicted.model.work.placement) == 4
    ends = [homes[f"layer{layer}/feed_forward/down/weights"].ipu for layer in range(4)]
    assert ends == sorted(ends)
    assert (homes["tokens"].ipu, max(op.place.stage for op in graph.ops)) == (0, 4)
    places = {id: op.place for op in graph.ops for id in op.outputs}
    passed = {id for op in graph.ops for id in op.inputs if id in places and places[id].ipu != op.place.ipu}
    assert len({id for id in passed if graph.tensor(id).role is Role.COMPUTED}) <= 8  # two inside a residual layer


def annotated(graph: Graph, key: str, stage_of: Callable[[int], int]) -> Graph:
    graph.ops = [
        replace(op, attributes=dict(op.attributes) | {key: stage_of(index)}) for index, op in enumerate(graph.ops)
    ]
    return graph


@pytest.mark.parametrize("key", [IPU_NUMBER, PIPELINE_STAGE])
def test_annotations_of_a_file_are_kept(tmp_path: Path, key: str) -> None:
    model = named("mlp", batch=2)
    annotated(model.graph, key, lambda place: int(place > 0))
    path = tmp_path / "mlp.onnx"
    path.write_bytes(model.proto)
    request = CompileRequest(str(path), loss=model.loss, ipus=2, accumulation=4, schedule="grouped")
    places = [op.place.ipu for op in request.compiled_until("assign-ipus").graph.ops]
    assert places == [0, *[1] * (len(places) - 1)]
    predicted = request.predicted(POD)
    assert predicted is not None
    assert [len(blocks) for blocks in predicted.model.work.placement] == [1, 3]


def test_an_ipu_number_that_a_replica_has_not_is_refused(tmp_path: Path) -> None:
    model = named("mlp", batch=2)
    annotated(model.graph, IPU_NUMBER, lambda place: place)
    path = tmp_path / "mlp.onnx"
    path.write_bytes(model.proto)
    with pytest.raises(EmulatorError, match=r"invalid virtual graph 2\. numIPUs = 2"):
        CompileRequest(str(path), loss=model.loss, ipus=2).compiled_until("assign-ipus")


@pytest.mark.parametrize(("ipus", "placement"), [(3, ""), (4, ""), (4, "balanced")])
def test_ops_are_divided_if_there_are_fewer_layers_than_ipus(ipus: int, placement: str) -> None:
    request = CompileRequest("mlp", ipus=ipus, placement=placement)
    assert {op.place.ipu for op in request.compiled_until("assign-ipus").graph.ops} == set(range(ipus))
    predicted = request.predicted(POD)
    assert predicted is None if ipus == 3 else all(predicted.model.work.placement)


def predicted_blocks(words: str) -> list[list[str]]:
    """The blocks of each IPU that ``ipu-emu predict`` prints."""
    return [ipu["blocks"] for ipu in json.loads(printed(f"predict {words} --format json"))["memory"]["ipus"]]


#: Small models on 2 and on 4 IPUs; of the large ones, whose files are hundreds of MB, all but these with ``--full``.
LARGE = {("vit-b16", 4), ("bert-base", 2), ("gpt2", 4)}
CUTS = [
    *((model, ipus) for model in ("mlp", "resnet8", "transformer") for ipus in (2, 4)),
    *(
        pytest.param(model, ipus, marks=() if (model, ipus) in LARGE else pytest.mark.full)
        for model in ("vit-b16", "bert-base", "gpt2")
        for ipus in (2, 4)
    ),
]


@pytest.mark.parametrize(("model", "ipus"), CUTS)
def test_predictions_have_the_cut_of_the_program(model: str, ipus: int, tmp_path: Path) -> None:
    """A block of a file has the name of the first result of its ops."""
    built, path = named(model, batch=1), tmp_path / f"{model}.onnx"
    path.write_bytes(built.proto)
    request = CompileRequest(str(path), loss=built.loss, ipus=ipus, accumulation=20)
    graph = request.compiled_until("assign-ipus").graph
    homes = {id: op.place.ipu for op in graph.ops for id in op.outputs}
    told = predicted_blocks(f"{path} --ipus {ipus}")
    assert [sorted({homes[name] for name in names}) for names in told] == [[ipu] for ipu in range(ipus)]
    of_name = CompileRequest(model, ipus=ipus, accumulation=20).predicted(POD)
    assert of_name is not None
    if model != "mlp" or ipus == 2:  # in the list of blocks there are three
        blocks_by_ipu = of_name.model.work.placement
        told = [[block.name for block in blocks] for blocks in blocks_by_ipu]
        assert predicted_blocks(f"{model} --ipus {ipus}") == told


def test_mistakes() -> None:
    with pytest.raises(EmulatorError, match="adds up to 11"):
        CompileRequest("bert-base", ipus=4, placement="0,4,4,3").compiled_until("assign-ipus")
    with pytest.raises(EmulatorError, match="add --ipus"):
        CompileRequest("bert-base", placement="balanced").compiled_until("assign-ipus")
