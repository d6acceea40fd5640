"""Graph placement: layers of named models on the IPUs that --placement names, for the compiler."""

from __future__ import annotations

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
from ipu_emu.predict.graph_placement import op_places, placed_blocks
from ipu_emu.predict.job import Job

POD = System.named("pod16")


@pytest.mark.parametrize("model", [name for name in CATALOGUE if name not in ("mlp", "gpt2-large", "gpt2-xl")])
def test_every_op_has_a_place_and_reads_from_earlier_stages(model: str) -> None:
    built = named(model)
    places = op_places(built.graph, placed_blocks(Job(model, POD, ipus=2, recompute=True)), is_named=True)
    made: dict[str, tuple[int, int]] = {}
    for op in built.graph.ops:
        place = places[op.outputs[0]]
        assert all(made[id][1] <= place[1] for id in op.inputs if id in made)
        made |= dict.fromkeys(op.outputs, place)
    assert {ipu for ipu, _ in places.values()} == {0, 1}


def test_layers_are_on_the_requested_ipus_and_tied_logits_with_their_table() -> None:
    asked = CompileRequest(
        "bert-base", batch=1, ipus=4, accumulation=16, schedule="popart", recompute="Standard", placement="0,4,4,4"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table on two IPUs would be copied for every micro-batch
        graph = asked.compiled_until("assign-ipus").graph
    homes = {id: op.place.ipu for op in graph.ops for id in op.inputs if id}
    assert [homes[f"layer{layer}/attention/q/weights"] for layer in range(12)] == [1] * 4 + [2] * 4 + [3] * 4
    assert homes["tokens"] == homes["heads/words/weights"] == 0
    assert homes["pooler/weights"] == 3
    stages = {op.place.stage for op in graph.ops if "heads/words/weights" in op.inputs}
    assert stages == {4}


def test_bert_large_is_balanced_on_four_ipus() -> None:
    asked = CompileRequest(
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
        graph = asked.compiled_until("assign-ipus").graph
    homes = {id: op.place.ipu for op in graph.ops for id in op.inputs if id}
    ends = (2, 3, 9, 10, 16, 17, 23)
    assert [homes[f"layer{layer}/feed_forward/up/weights"] for layer in ends] == [0, 1, 1, 2, 2, 3, 3]


def test_a_file_is_divided_where_little_passes_and_its_logits_are_with_their_table(tmp_path: Path) -> None:
    model = gpt2(batch=1, layers=4, width=32, heads=2, length=8, vocabulary=64, dtype=np.float16, seed=None)
    path = tmp_path / "gpt2.onnx"
    path.write_bytes(model.proto)
    asked = CompileRequest(
        str(path), loss=model.loss, ipus=4, accumulation=10, schedule="grouped", recompute="Standard"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table on two IPUs would be copied for every micro-batch
        graph = asked.compiled_until("assign-ipus").graph
    homes = {id: op.place for op in graph.ops for id in op.inputs if id}
    predicted = asked.predicted(POD)
    assert predicted is not None
    assert len(predicted.model.work.placement) == 4
    ends = [homes[f"layer{layer}/feed_forward/down/weights"].ipu for layer in range(4)]
    assert ends == sorted(ends)
    assert (homes["tokens"].ipu, max(op.place.stage for op in graph.ops)) == (0, 4)
    made = {id: op.place for op in graph.ops for id in op.outputs}
    passed = {id for op in graph.ops for id in op.inputs if id in made and made[id].ipu != op.place.ipu}
    assert len({id for id in passed if graph.tensor(id).role is Role.COMPUTED}) == 4  # one from each IPU to the next


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
    asked = CompileRequest(str(path), loss=model.loss, ipus=2, accumulation=4, schedule="grouped")
    places = [op.place.ipu for op in asked.compiled_until("assign-ipus").graph.ops]
    assert places == [0, *[1] * (len(places) - 1)]
    assert ("balanced layers" in asked.compiled(POD).otherwise) == (key == PIPELINE_STAGE)
    predicted, balanced = (replace(asked, placement=name).predicted(POD) for name in ("", "balanced"))
    assert predicted is not None
    assert balanced is not None
    sizes = [len(blocks) for blocks in predicted.model.work.placement]
    assert sizes == ([1, 3] if key == IPU_NUMBER else [len(each) for each in balanced.model.work.placement])


def test_an_ipu_number_that_a_replica_has_not_is_refused(tmp_path: Path) -> None:
    model = named("mlp", batch=2)
    annotated(model.graph, IPU_NUMBER, lambda place: place)
    path = tmp_path / "mlp.onnx"
    path.write_bytes(model.proto)
    with pytest.raises(EmulatorError, match=r"invalid virtual graph 2\. numIPUs = 2"):
        CompileRequest(str(path), loss=model.loss, ipus=2).compiled_until("assign-ipus")


def test_the_compiler_cuts_what_predictions_cannot_place() -> None:
    for ipus, placement in ((3, ""), (4, ""), (2, "auto")):
        asked = CompileRequest("mlp", ipus=ipus, placement=placement)
        places = {op.place.ipu for op in asked.compiled_until("assign-ipus").graph.ops}
        assert places == set(range(ipus))
    with pytest.raises(EmulatorError, match=r"mlp has no block for IPU 2; use fewer IPUs"):
        CompileRequest("mlp", ipus=4, placement="balanced").compiled_until("assign-ipus")


def test_mistakes() -> None:
    with pytest.raises(EmulatorError, match="adds up to 11"):
        CompileRequest("bert-base", ipus=4, placement="0,4,4,3").compiled_until("assign-ipus")
    with pytest.raises(EmulatorError, match="add --ipus"):
        CompileRequest("bert-base", placement="balanced").compiled_until("assign-ipus")
