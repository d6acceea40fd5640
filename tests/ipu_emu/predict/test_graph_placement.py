"""Graph placement: layers of named models on the IPUs that --placement names, for the compiler."""

from __future__ import annotations

import warnings

import pytest

from ipu_emu.cli.commands.compile_model import CompileRequest
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.models import CATALOGUE, named
from ipu_emu.predict.graph_placement import op_places, placed_blocks
from ipu_emu.predict.job import Job

POD = System.named("pod16")


@pytest.mark.parametrize("model", [name for name in CATALOGUE if name not in ("mlp", "gpt2-large", "gpt2-xl")])
def test_every_op_has_a_place_and_reads_from_earlier_stages(model: str) -> None:
    built = named(model)
    places = op_places(built, placed_blocks(Job(model, POD, ipus=2, recompute=True)))
    made: dict[str, tuple[int, int]] = {}
    for op in built.graph.ops:
        place = places[op.outputs[0]]
        assert all(made[id][1] <= place[1] for id in op.inputs if id in made)
        made |= dict.fromkeys(op.outputs, place)
    assert {ipu for ipu, _ in places.values()} == {0, 1}


def test_layers_are_where_they_were_asked_for_and_tied_logits_with_their_table() -> None:
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


def test_mistakes() -> None:
    with pytest.raises(EmulatorError, match="adds up to 11"):
        CompileRequest("bert-base", ipus=4, placement="0,4,4,3").compiled_until("assign-ipus")
    with pytest.raises(EmulatorError, match="named models only"):
        CompileRequest("model.onnx", ipus=4, placement="balanced").compiled_until("assign-ipus")
    with pytest.raises(EmulatorError, match="add --ipus"):
        CompileRequest("bert-base", placement="balanced").compiled_until("assign-ipus")
