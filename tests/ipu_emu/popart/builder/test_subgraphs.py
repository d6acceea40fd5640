"""Subgraphs of a Builder: inputs without a type or from the parent graph, in calls and scans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer

X = np.arange(4, dtype=np.float32)


class Model:
    """Two inputs and a subgraph builder."""

    def __init__(self, opset: int = 10) -> None:
        self.builder = popart.Builder(opsets={"ai.onnx": opset})
        self.x, self.y = (self.builder.addInputTensor("FLOAT", [4], name) for name in "xy")
        self.body = self.builder.createSubgraphBuilder()

    def call(self, args: list[str], outputs: int = 1) -> Any:
        return self.builder.aiGraphcore.call(args, outputs, self.body, debugContext="here")

    def run(self, ids: list[str], **more: Any) -> list[Any]:
        anchors = infer(self.builder, popart.DataFlow(1, ids), {"x": X, "y": X + 1, **more})
        return [anchors[id].tolist() for id in ids]


def test_an_untyped_input_gets_the_type_of_each_call() -> None:
    model = Model()
    a, b = model.body.addUntypedInputTensor(), model.body.addUntypedInputTensor("b")
    assert model.body.getInputTensorIds() == [a, b] == ["input", "b"]
    with pytest.raises(popart.popart_exception, match="Shape and type of tensor 'b' are not known"):
        model.body.getTensorShape(b)
    product = model.body.aiOnnx.matmul([model.body.aiOnnx.unsqueeze([a], [0]), model.body.aiOnnx.unsqueeze([b], [1])])
    model.body.addOutputTensor(product)
    both = model.builder.aiOnnx.concat([model.x, model.y], 0)
    ids = [*model.call([model.x, model.y]), *model.call([both, both])]
    assert [model.builder.getTensorShape(id) for id in ids] == [[1, 1], [1, 1]]
    assert model.run(ids) == [[[20]], [[44]]]


def test_an_input_from_the_parent_graph_counts_in_a_call() -> None:
    model = Model()
    model.body.addInputTensorFromParentGraph(model.x)
    a = model.body.addUntypedInputTensor()
    assert model.body.getInputTensorIds() == ["x", a]
    model.body.addOutputTensor(model.body.aiOnnx.sub([a, model.x]))
    text = r"^For CallOp 'here', number of inputs \(1\) does not match that of the callee subgraph \(2\)$"
    with pytest.raises(popart.popart_exception, match=text):
        model.call([model.y])
    with pytest.raises(
        popart.popart_exception, match=text.replace("inp", "outp").replace("1", "3").replace("2", "1")
    ):
        model.call([model.x, model.y], 3)
    with pytest.raises(popart.popart_exception, match=r"^Failed to add unrecognised Tensor z from higher scope, "):
        model.body.addInputTensorFromParentGraph("z")
    assert model.run(model.call([model.y, model.x])) == [[-1, -1, -1, -1]]


@pytest.mark.parametrize("kind", ["BOOL", "FLOAT"])
def test_branches_find_inputs_by_name(kind: str) -> None:
    model = Model()
    builder = model.builder
    condition = builder.addInputTensor(kind, [], "c")
    other = builder.createSubgraphBuilder()
    for body, id in ((model.body, model.x), (other, model.y)):
        body.addInputTensorFromParentGraph(id)
        body.addOutputTensor(body.aiOnnx.neg([id]))
    (branch,) = builder.aiOnnx.logical_if([condition], 1, other, model.body)
    dtype = np.dtype(bool) if kind == "BOOL" else np.float32
    assert [model.run([branch], c=np.array(value, dtype))[0][3] for value in (1, 0)] == [-3, -4]


def test_a_loop_over_untyped_states_and_a_tensor_of_the_parent() -> None:
    model = Model()
    for name in ("i", "on", "state"):
        model.body.addUntypedInputTensor(name)
    model.body.addInputTensorFromParentGraph(model.y)
    total = model.body.aiOnnx.add(["state", model.y])
    for id in ("on", total, model.body.aiOnnx.mul([total, total])):
        model.body.addOutputTensor(id)
    a = model.builder.aiOnnx
    start = [a.constant(np.array(2, np.int64)), a.constant(np.array(True)), model.x]
    last, rows = a.loop(start, 2, model.body)
    assert model.builder.getTensorShape(rows) == [2, 4]
    assert model.run([last, rows]) == [[2, 5, 8, 11], [[1, 9, 25, 49], [4, 25, 64, 121]]]


@pytest.mark.parametrize(
    ("shape", "attributes", "want"),
    [
        ((3, 2), {}, [0, 1, 2, 4, 6, 9]),
        ((3, 2), {"scan_input_directions": [1]}, [4, 5, 6, 8, 6, 9]),
        ((3, 2), {"scan_output_directions": [1]}, [6, 9, 2, 4, 0, 1]),
        ((2, 3), {"scan_input_axes": [-1]}, [0, 3, 1, 7, 3, 12]),
        ((3,), {"scan_output_axes": [-1]}, [0, 0, 1, 1, 3, 3]),
    ],
)
@pytest.mark.parametrize("opset", [9, 11])
def test_a_scan_concatenates(shape: tuple[int, ...], attributes: dict[str, Any], want: Any, opset: int) -> None:
    builder = popart.Builder(opsets={"ai.onnx": opset})
    x, start = (builder.addInputTensor("FLOAT", size, name) for size, name in ((shape, "x"), ([2], "start")))
    body = builder.createSubgraphBuilder()
    total = body.aiOnnx.add([body.addUntypedInputTensor(), body.addUntypedInputTensor()])
    body.addOutputTensor(total)
    body.addOutputTensor(body.aiOnnx.identity([total]))
    last, rows = builder.aiOnnx.scan([start, x], 2, body, 1, **attributes)
    assert builder.getTensorShape(rows) == [6]
    data = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape), "start": np.zeros(2, np.float32)}
    assert infer(builder, popart.DataFlow(1, [last, rows]), data)[rows].tolist() == want


def test_scanned_inputs_of_different_lengths() -> None:
    model = Model()
    short = model.builder.aiOnnx.concat([model.x, model.y], 0)
    model.body.addOutputTensor(
        model.body.aiOnnx.add([model.body.addUntypedInputTensor(), model.body.addUntypedInputTensor()])
    )
    scanned = model.builder.aiOnnx.scan([model.x, short], 1, model.body, 2)
    with pytest.raises(popart.popart_exception, match=r"^\[ScanOp\] Number of iterations .* do not match: 4 8$"):
        model.run(scanned)


@pytest.mark.parametrize(
    ("ipu", "text"),
    [(None, "does not have a virtual graph id. When"), (1, r"The virtual graph id \(1\) for Op"), (0, "")],
)
def test_ops_of_a_called_subgraph_are_on_the_ipu_of_the_call(ipu: int | None, text: str) -> None:
    model = Model()
    builder = model.builder
    a = model.body.addUntypedInputTensor()
    result = model.body.aiOnnx.relu([a])
    if ipu is not None:
        model.body.virtualGraph(result, ipu)
    model.body.addOutputTensor(result)
    with builder.virtualGraph(0), builder.pipelineStage(0):
        (y,) = model.call([model.x])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        z = builder.aiOnnx.neg([y])
    opts = popart.SessionOptions()
    opts.enablePipelining, opts.virtualGraphMode = True, popart.VirtualGraphMode.Manual
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    arguments = (builder.getModelProto(), popart.DataFlow(2, [z]), device)
    if text:
        with pytest.raises(popart.popart_exception, match=text):
            popart.InferenceSession(*arguments, userOptions=opts)
    else:
        popart.InferenceSession(*arguments, userOptions=opts)


def test_a_tensor_may_be_two_outputs_of_a_subgraph() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    body = builder.createSubgraphBuilder()
    y = body.aiOnnx.neg([body.addUntypedInputTensor()])
    body.addOutputTensor(y)
    body.addOutputTensor(y)
    results = builder.aiGraphcore.call([x], 2, body)
    anchors = infer(builder, popart.DataFlow(1, results), {x: np.ones(2, np.float32)})
    assert [anchors[id].tolist() for id in results] == [[-1, -1], [-1, -1]]
