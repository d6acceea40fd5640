"""Fused updates: which copies into variables disappear, and that no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.fusion.fused_updates import fuse_updates
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import append


def momentum_step(*, reads_later: bool = False) -> Graph:
    """m = 0.9 m + g; w = w - m, each copied into its variable; a last op may read the old weight."""
    graph = Graph()
    for id, role in (("g", Role.INPUT), ("w", Role.WEIGHT), ("m", Role.WEIGHT)):
        data = None if role is Role.INPUT else np.ones((3, 4), np.float32)
        graph.add(Tensor(id, FLOAT, (3, 4), role), data)
    graph.add(Tensor("rate", FLOAT, (), Role.CONSTANT), np.float32(0.9))
    for type, inputs, output, domain in (
        ("Mul", ("m", "rate"), "slower", ""),
        ("Add", ("slower", "g"), "new m", ""),
        ("Sub", ("w", "new m"), "new w", ""),
        ("Tanh", ("w",), "late", ""),
        ("CopyVarUpdate", ("m", "new m"), "set m", GRAPHCORE),
        ("CopyVarUpdate", ("w", "new w"), "set w", GRAPHCORE),
    ):
        if output != "late" or reads_later:
            append(graph, Op(type, inputs, (output,), {}, domain, 10))
    return graph


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


def test_a_kernel_whose_results_are_only_copied_into_variables_writes_them_itself() -> None:
    graph = momentum_step()
    fuse(graph, [])
    assert types(graph) == ["Fused", "CopyVarUpdate", "CopyVarUpdate"]
    fuse_updates(graph, [])
    (update,) = graph.ops
    assert update.type == "FusedUpdate"
    assert (set(update.inputs[:2]), update.inputs[2:]) == ({"w", "m"}, ("rate", "g"))
    assert set(update.outputs) == {"set w", "set m"}


@pytest.mark.parametrize(("reads_later", "wanted"), [(True, []), (False, ["new m"])])
def test_updates_are_copied_if_the_value_has_other_readers(reads_later: bool, wanted: list[str]) -> None:
    graph = momentum_step(reads_later=reads_later)
    fuse(graph, wanted)
    fuse_updates(graph, wanted)
    assert types(graph).count("CopyVarUpdate") == 2


def stepped(monkeypatch: pytest.MonkeyPatch, in_place: bool) -> Any:
    """The weights and states of a program whose optimizer copies its results into variables."""
    from ipu_emu import popart
    from ipu_emu.compiler import pipeline
    from tests.ipu_emu.helpers.sessions import device, options

    if not in_place:
        monkeypatch.setattr(pipeline, "fuse_updates", lambda graph, wanted: None)
    builder = popart.Builder()
    random = np.random.default_rng(0)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5, 7]))
    total = builder.addInitializedInputTensor(random.standard_normal((5, 7)).astype(np.float32))
    new = builder.aiOnnx.add([builder.aiOnnx.mul([total, builder.aiOnnx.constant(np.float32(0.9))]), x])
    out = builder.aiGraphcore.copyvarupdate([total, new])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [out]), device(options()))
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    for _ in range(3):
        session.run(popart.PyStepIO({x: random.standard_normal((5, 7)).astype(np.float32)}, arrays))
    return arrays[out].copy(), [op.type for op in session.executable.graph.ops]


def test_a_fused_update_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, ops = stepped(monkeypatch, True)
    assert "FusedUpdate" in ops
    other, ops = stepped(monkeypatch, False)
    assert "FusedUpdate" not in ops
    np.testing.assert_array_equal(fused, other)
