"""The list of passes: the result of each; none changes its input, and compiling needs no front end."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_emu.compiler.cache.executable_cache import cache_key, to_bytes
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.tensor_locations import LocationRule, StorageChoice, TensorLocations
from ipu_emu.compiler.optimisers.sgd_rule import SgdRule, SgdValues
from ipu_emu.compiler.optimisers.update_rule import HyperParameter
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.pipeline import PASSES, STEP_GRAPH, CompileState, compile, passes, run_passes
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import append
from ipu_emu.program.anchors import Anchor, Return, StepShape

NAMES = [pass_.name for pass_ in PASSES]


def model() -> Graph:
    """loss = sum |tanh(x w0) w1|."""
    graph = Graph()
    graph.add(Tensor("x", FLOAT, (2, 4), Role.INPUT))
    for name in ("w0", "w1"):
        graph.add(Tensor(name, FLOAT, (4, 4), Role.WEIGHT), np.eye(4, dtype=np.float32))
    append(graph, Op("MatMul", ("x", "w0"), ("h",)))
    append(graph, Op("Tanh", ("h",), ("t",)))
    append(graph, Op("MatMul", ("t", "w1"), ("y",)))
    append(graph, Op("L1", ("y",), ("loss",), {"lambda": 1.0, "reduction": "Sum"}, "ai.graphcore"))
    return graph


def rule(rate: float = 0.1) -> SgdRule:
    unit, zero = HyperParameter(1.0), HyperParameter(0.0)
    values = SgdValues(HyperParameter(rate, constant=False), zero, zero, zero, unit, HyperParameter(0.0))
    return SgdRule(values, loss_scaling=unit)


def training(**others: Any) -> CompileOptions:
    options = CompileOptions(
        step=StepShape(1, 4, 1), anchors=(Anchor("loss", Return.ALL),), training=TrainingOptions("loss", rule())
    )
    return replace(options, **others)


PIPELINED = {
    "placement": PlacementOptions(PlacementMode.AUTO, ipus=2),
    "pipeline": PipelineOptions("grouped"),
}
EVERYTHING = {
    "one IPU": {},
    "pipeline": PIPELINED,
    "off chip": {"locations": TensorLocations(*(LocationRule(StorageChoice(off_chip=True)),) * 4)},
    "recomputed": {"recomputation": Recomputation.ALL},
    "staged": {"streams": HostStreams(staged={"x": 2})},
    "synthetic": {"streams": HostStreams(synthetic=True)},
    "rounded": {"stochastic_rounding": True},
    "inference": {"training": None, "anchors": (Anchor("y", Return.ALL),), "step": StepShape(4, 1, 1)},
    "forward only": {"forward_only": True},
}


@pytest.mark.parametrize("how", EVERYTHING)
def test_no_pass_changes_the_state_that_it_is_given(how: str) -> None:
    state = CompileState(model(), training(**EVERYTHING[how]))
    states = [state]
    for pass_ in passes(state.options):
        states.append(run_passes(states[-1], stop_after=pass_.name))
    again = [CompileState(model(), training(**EVERYTHING[how]))]
    for pass_ in passes(state.options):
        again.append(run_passes(again[-1], stop_after=pass_.name))
        assert str(again[-1]) == str(states[len(again) - 1]), pass_.name
    printed = [str(state) for state in states]
    final = run_passes(states[0])
    assert [str(state) for state in states] == printed
    assert str(final) == printed[-1]
    assert list(final.done) == [pass_.name for pass_ in passes(state.options)]


def test_the_forms_follow_each_other() -> None:
    state = run_passes(CompileState(model(), training()), stop_after=STEP_GRAPH)
    assert "Gradient___w0" in str(state)
    assert state.program is None
    state = run_passes(state, stop_after="lower")
    assert str(state).startswith("repeat 1 batch")
    state = run_passes(state)
    assert str(state) == str(state.executable)
    assert to_bytes(state.executable, "") == to_bytes(compile(model(), training()), "")


@pytest.mark.parametrize(
    ("after", "makes"),
    [
        ("differentiate", "Gradient___w1 = "),
        ("update-weights", "UpdatedVar___w0 = "),
        ("offload-variables", "Loaded___w0 = RemoteLoad(w0)"),
        ("recompute", "Recomputed___"),
        ("insert-ipu-copies", "/ipu1 = IpuCopy("),
        ("offload-activations", "RemoteStore("),
        ("lower", "HostLoad"),
    ],
)
def test_the_result_of_a_pass_does_not_exist_before_it(after: str, makes: str) -> None:
    others = {**PIPELINED, **EVERYTHING["off chip"], **EVERYTHING["recomputed"]}
    if after == "recompute":
        others.pop("pipeline")
    state = CompileState(model(), training(**others))
    names = [pass_.name for pass_ in passes(state.options)]
    before = names[names.index(after) - 1]
    assert makes not in str(run_passes(state, stop_after=before))
    assert makes in str(run_passes(state, stop_after=after))


def test_collectives_that_become_one_are_neighbours_and_marked() -> None:
    sharded = LocationRule(StorageChoice(sharded=True), smallest_sharded=2)
    options = training(
        replicas=2, locations=TensorLocations(sharded, sharded), step=StepShape(1, 1, 2), bucket_bytes=1 << 20
    )
    state = run_passes(CompileState(model(), options), stop_after="merge-collectives")
    marked = [line for line in str(state).splitlines() if line.endswith("  merged with the op above")]
    assert len(marked) == sum(len(ids) - 1 for ids in state.merged) > 0
    order = [op.outputs[0] for op in state.graph.ops]
    for ids in state.merged:
        first = order.index(ids[0])
        assert tuple(order[first : first + len(ids)]) == ids


def test_the_forward_pass_of_a_training_graph_has_no_gradients() -> None:
    step = run_passes(CompileState(model(), training()), stop_after=STEP_GRAPH)
    forward = run_passes(replace(step, options=training(forward_only=True)))
    assert "Gradient___" not in str(forward)
    assert run_passes(step).executable.anchors == forward.executable.anchors


@pytest.mark.parametrize("how", EVERYTHING)
def test_every_compilation_passes_through_the_graph_of_a_step(how: str) -> None:
    options = training(**EVERYTHING[how])
    step = run_passes(CompileState(model(), options), stop_after=STEP_GRAPH)
    assert step.done[-1] == STEP_GRAPH
    assert to_bytes(run_passes(step).executable, "") == to_bytes(compile(model(), options), "")


@pytest.mark.parametrize("stop", ["check-anchors", None])
def test_an_anchor_that_is_no_tensor_is_refused_by_its_own_pass(stop: str | None) -> None:
    state = CompileState(model(), training(anchors=(Anchor("nothing", Return.ALL),)))
    state = run_passes(state, stop_after="offload-variables")
    with pytest.raises(EmulatorError, match=r"^Anchor tensor `nothing' not in Ir Tensors\."):
        run_passes(state, stop_after=stop)


@pytest.mark.parametrize(
    ("name", "hint"), [("fold", "ipu-emu compile --list names all"), ("lowering", "did you mean 'lower'[?]")]
)
def test_a_name_that_no_pass_has_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(EmulatorError, match=f"^'{name}' is not a pass of the compiler; {hint}"):
        run_passes(CompileState(model(), training()), stop_after=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelled_pass_is_named(name: str) -> None:
    """The last letter is missing."""
    with pytest.raises(EmulatorError, match=f"did you mean '{name}'[?]"):
        run_passes(CompileState(model(), training()), stop_after=name[:-1])


def test_names_are_unique_and_summaries_one_line() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(pass_.summary and "\n" not in pass_.summary and len(pass_.summary) < 80 for pass_ in PASSES)


def test_options_are_data_that_a_cache_key_can_be_made_of() -> None:
    graph, keys = model(), []
    for others in EVERYTHING.values():
        keys.append(cache_key(graph, training(**others)))
        assert keys[-1] == cache_key(graph, training(**others))
    assert len(set(keys)) == len(keys)


def test_the_compiler_needs_no_front_end() -> None:
    code = (
        "import sys, ipu_emu.session.footprint, ipu_emu.compiler.cache.executable_cache;"
        "print([m for m in sys.modules if m.startswith(('ipu_emu.popart', 'ipu_emu.tensorflow', 'ipu_emu.engine'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "[]"
