"""Compiled cells: values and gradients equal those of the numpy cells, which other tests compare with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.ops.recurrence import recurrent_cells
from tests.ipu_emu.helpers.sessions import train

T, H, INPUTS = 5, 32, 7
GATES = {"lstm": 4, "gru": 3, "early-reset gru": 3, "rnn": 1}


def computed(cell: str, batch: int, direction: str, dtype: Any) -> list[np.ndarray]:
    """The output, the last states, and all gradients."""
    random, gates, sides = np.random.default_rng(batch), GATES[cell], 2 if direction == "bidirectional" else 1
    shapes = [(T, batch, INPUTS), (sides, gates * H, INPUTS), (sides, gates * H, H), (sides, 2 * gates * H)]
    shapes += [(sides, batch, H)] * (2 if cell == "lstm" else 1)
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor((0.3 * random.standard_normal(s)).astype(dtype)) for s in shapes]
    operands = [*ids[:4], "", *ids[4:]]
    more = {"linear_before_reset": 1} if cell == "gru" else {}
    outputs = getattr(builder.aiOnnx, cell.split()[-1])(
        operands, len(ids) - 3, direction=direction, hidden_size=H, **more
    )
    o = builder.aiOnnx
    loss = o.add([o.reducesum([o.mul([outputs[0], outputs[0]])]), o.reducesum([o.sin([outputs[-1]])])])
    wanted = [*outputs, *(f"Gradient___{id}" for id in ids)]
    flow = popart.DataFlow(1, wanted)
    session = train(builder, flow, loss, popart.ConstSGD(0.1), limits=False)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    return [anchors[id].copy() for id in wanted]


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("batch", "dtype"), [(1, np.float32), (11, np.float32), (3, np.float16)], ids=str)
def test_compiled_cells_are_those_in_numpy(
    cell: str, direction: str, batch: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = computed(cell, batch, direction, dtype)
    monkeypatch.setattr(recurrent_cells, "is_compiled", lambda node, gradient=False: False)
    expected = computed(cell, batch, direction, dtype)
    tolerance = 2e-5 if dtype == np.float32 else 2e-2
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(np.abs(b).max(), 1))


def test_other_functions_run_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    compiled = recurrent_cells.is_compiled
    monkeypatch.setattr(
        recurrent_cells,
        "is_compiled",
        lambda node, gradient=False: answers.append(compiled(node, gradient=gradient)) or answers[-1],
    )
    computed("lstm", 2, "forward", np.float32)
    assert all(answers)
    answers.clear()
    builder = popart.Builder()
    shapes = [(T, 2, INPUTS), (1, 4 * H, INPUTS), (1, 4 * H, H)]
    ids = [builder.addInitializedInputTensor(np.zeros(s, np.float32)) for s in shapes]
    y = builder.aiOnnx.lstm(ids, 1, hidden_size=H, clip=1.0)[0]
    train(builder, popart.DataFlow(1, [y]), builder.aiOnnx.reducesum([y]), popart.ConstSGD(0.1), limits=False)
    assert answers
    assert not any(answers)


def test_only_the_products_and_the_recurrence_of_one_direction_handle_all_steps() -> None:
    """The biases are added to each other, not to the products of all steps, and the states are not copied."""
    builder = popart.Builder()
    shapes = [(T, 2, INPUTS), (1, 4 * H, INPUTS), (1, 4 * H, H), (1, 8 * H)]
    ids = [builder.addInitializedInputTensor(np.zeros(s, np.float32)) for s in shapes]
    y = builder.aiOnnx.lstm(ids, 1, hidden_size=H)[0]
    loss = builder.aiOnnx.reducesum([y])
    session = train(builder, popart.DataFlow(1, [y]), loss, popart.ConstSGD(0.1), limits=False)
    graph = session.executable.graph
    large = [op.type for op in graph.ops if any(graph.tensor(id).nelms >= T * 2 * H for id in op.outputs if id)]
    assert not {"Add", "Concat", "Fused"} & set(large)
