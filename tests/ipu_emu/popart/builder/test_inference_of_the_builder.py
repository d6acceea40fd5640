"""The Builder's information about its nodes: stored attributes, ids, shapes, checkpoints."""

from __future__ import annotations

import numpy as np
import onnx

from ipu_emu import popart


def test_only_integers_keep_their_defaults() -> None:
    b = popart.Builder()
    x, w, r = (b.addInputTensor("FLOAT", shape) for shape in ([2, 2, 3], [1, 4, 3], [1, 4, 4]))
    y = b.aiOnnx.rnn([x, w, r], 2)
    leaky, total = b.aiOnnx.leakyrelu([y[0]]), b.aiOnnx.reducesum([y[0]], axes=[1])
    names = [b.getAllNodeAttributeNames(ids) for ids in (set(y), {leaky}, {total})]
    assert names == [["__debug_info_id"], ["__debug_info_id"], ["axes", "keepdims", "__debug_info_id"]]
    b.addNodeAttribute("activations", ["Relu"], set(y))
    assert b.getStringVectorNodeAttribute("activations", set(y)) == ["Relu"]


def test_values_are_the_results_of_all_ops() -> None:
    b = popart.Builder()
    y = b.aiOnnx.relu([b.addInputTensor("FLOAT", [4])])
    z = b.aiOnnx.neg([y])
    b.addOutputTensor(z)
    assert b.getValueTensorIds() == [y, z]


def test_shapes_that_differ_from_those_of_a_session() -> None:
    b = popart.Builder()
    assert b.getTensorShape(b.aiGraphcore.subsample([b.addInputTensor("FLOAT", [5])], [2])) == [2]
    operands = [b.addInputTensor("FLOAT", [4, 3]), b.addInputTensor("INT32", [7])]
    assert b.getTensorShape(b.aiGraphcore.nllloss(operands, popart.ReductionType.NoReduction)) == [7]


def test_one_id_may_stand_for_the_args_of_reshape() -> None:
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [4])
    assert b.getTensorShape(b.aiGraphcore.reshape(x, [2, 2])) == [2, 2]


def test_checkpoints_are_identities_that_are_kept() -> None:
    b = popart.Builder()
    (z,) = b.checkpointOutput([b.aiOnnx.relu([b.addInputTensor("FLOAT", [4])])])
    node = onnx.load_from_string(b.getModelProto()).graph.node[-1]
    assert (node.op_type, node.name, list(node.output)) == ("Identity", "Checkpoint", [z])
    assert b.getStringVectorNodeAttribute("__exclude_patterns", {z}) == ["PreUniRepl", "PostNRepl"]


def test_pipelines_take_checkpoints() -> None:
    b = popart.Builder()
    h = b.addInputTensor("FLOAT", [2, 2])
    for stage in range(2):
        with b.virtualGraph(stage):
            product = b.aiOnnx.matmul([h, b.addInitializedInputTensor(np.eye(2, dtype=np.float32))])
            (h,) = b.checkpointOutput([product])
    with b.virtualGraph(1):
        loss = b.aiGraphcore.identityloss([h])
    opts = popart.SessionOptions()
    opts.enablePipelining, opts.virtualGraphMode = True, popart.VirtualGraphMode.Manual
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    flow = popart.DataFlow(4, [loss])
    popart.TrainingSession(b.getModelProto(), flow, loss, popart.SGD({}), device, userOptions=opts).prepareDevice()
