"""Serialised IR: the names and the structure of ops after PopART's transforms."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device_of

Build = Callable[[popart.Builder], str]


def ir_of(
    build: Build,
    options: popart.SessionOptions | None = None,
    *,
    optimizer: Any = None,
    inference: bool = False,
    ipus: int = 1,
    patterns: popart.Patterns | None = None,
    accumulate: int = 1,
    **values: Any,
) -> dict[str, list[dict[str, Any]]]:
    builder, options = popart.Builder(), options or popart.SessionOptions()
    options.enableOutlining = False
    if accumulate > 1:
        values |= {"enableGradientAccumulation": True, "accumulationFactor": accumulate}
    for name, value in values.items():
        setattr(options, name, value)
    out = build(builder)
    device = device_of(ipus, options.localReplicas())
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
    proto = builder.getModelProto()
    if inference:
        session: Any = popart.InferenceSession(proto, flow, device, userOptions=options, patterns=patterns)
    else:
        optimizer = optimizer or popart.SGD({})
        session = popart.TrainingSession(proto, flow, out, optimizer, device, userOptions=options, patterns=patterns)
    graphs: dict[str, list[dict[str, Any]]] = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    return graphs


def types(ops: list[dict[str, Any]]) -> list[str]:
    return [op["type"] for op in ops]


def two_products(b: popart.Builder) -> str:
    h = b.addInputTensor("FLOAT", [2, 4])
    for _ in range(2):
        h = b.aiOnnx.relu([b.aiOnnx.matmul([h, b.addInitializedInputTensor(np.ones((4, 4), np.float32))])])
    return str(b.aiGraphcore.l1loss([h], 0.1))


def test_every_value_is_a_text() -> None:
    def build(b: popart.Builder) -> str:
        with b.nameScope("layer"):
            return str(b.aiOnnx.leakyrelu([b.aiOnnx.neg([b.addInputTensor("FLOAT", [4])])], 0.5, "leaky"))

    (neg, leaky) = ir_of(build, inference=True)["maingraph"]
    assert neg["inputs"] == [{"name": "layer/input", "shape": "[4]", "type": "FLOAT", "index": "0"}]
    assert leaky == {
        "type": "LeakyReluInplace",
        "name": "layer/leaky",
        "inputs": [{"name": "layer/Neg:0", "shape": "[4]", "type": "FLOAT", "index": "0"}],
        "outputs": [{"name": "layer/LeakyRelu:0", "index": "0"}],
        "attributes": {
            "alpha": "0.500000",
            "recompute": "NO",
            "__execution_context": "Normal",
            "scope": "layer",
            "recomputetype": "Checkpoint",
            "schedulePriority": "0.000000",
        },
    }


def test_products_have_rank_3_and_their_gradients_are_products_of_transposes() -> None:
    ops = types(ir_of(two_products)["maingraph"])
    assert ops.count("MatMul") == 2 + 3
    assert ops[:5] == ["ReshapeInplace", "Reshape", "MatMul", "ReshapeInplace", "ReluInplace"]
    assert ops[-2:] == ["SGD0VarUpdate"] * 2


def test_weights_anchors_and_tensors_that_are_read_later_are_not_overwritten() -> None:
    def build(b: popart.Builder) -> str:
        x = b.addInputTensor("FLOAT", [4])
        y = b.aiOnnx.add([x, b.aiOnnx.relu([b.aiOnnx.neg([x])])])
        return str(b.aiOnnx.add([b.aiOnnx.tanh([y]), y]))

    ops = types(ir_of(build, inference=True)["maingraph"])
    assert ops == ["Neg", "ReluInplace", "AddLhsInplace", "Tanh", "AddLhsInplace"]
    off = popart.Patterns().enablePattern("InPlace", False)
    assert types(ir_of(build, inference=True, patterns=off)["maingraph"]) == ["Neg", "Relu", "Add", "Tanh", "Add"]


def test_constants_identities_and_sums_of_one_vanish() -> None:
    def build(b: popart.Builder) -> str:
        x = b.aiOnnx.identity([b.aiOnnx.sum([b.addInputTensor("FLOAT", [4])])])
        constant = b.aiOnnx.constant(np.ones(4, np.float32))
        y = b.aiOnnx.sum([x, b.aiOnnx.exp([constant])])
        return str(b.aiOnnx.concat(b.aiOnnx.split([y], 2), 0))

    ops = types(ir_of(build, inference=True)["maingraph"])
    assert ops == ["AddLhsInplace", "SliceInplace", "SliceInplace", "ConcatInplace"]


def test_a_serialised_product_has_as_many_parts_as_its_factor() -> None:
    def build(b: popart.Builder) -> str:
        x = b.addInputTensor("FLOAT", [2, 4])
        w = b.addInitializedInputTensor(np.ones((4, 8), np.float32))
        y = b.aiOnnx.matmul([b.aiOnnx.exp([x]), w])
        b.setSerializeMatMul({y}, "output_channels", 4)
        return str(b.aiGraphcore.identityloss([y]))

    assert types(ir_of(build, inference=True)["maingraph"]).count("MatMul") == 4
    assert types(ir_of(build)["maingraph"]).count("MatMul") == 8


def test_updates() -> None:
    separate = popart.SGDAccumulatorAndMomentum.Separate
    momentum = {"defaultMomentum": (0.9, True)}
    cases = [
        (popart.SGD(momentum), ["SGD1VarUpdate", "SGD1AcclUpdate"]),
        (
            popart.SGD(momentum, accumulatorAndMomentum=separate),
            ["SGD2PartialAcclUpdate", "Accumulate", "SGD2VarUpdate", "AccumulatorZero"],
        ),
        (popart.Adam({}), ["Accumulate", "Accumulate", "AdamUpdater", "AdamVarUpdate", "AccumulatorZero"]),
        (popart.Adaptive({}), ["Accumulate", "RMSPropUpdater", "ScaledVarUpdate", "AccumulatorZero"]),
    ]
    for optimizer, expected in cases:
        ops = ir_of(two_products, optimizer=optimizer, accumulate=3)["maingraph"]
        outer = [op for op in ops if op["attributes"]["__execution_context"] == "AccumulateOuterFragment"]
        assert types(outer) == 2 * expected
        assert types(ops[: -len(outer)]).count("Accumulate") == 2


def test_host_copies_and_reductions_of_replicas() -> None:
    clip = [popart.ClipNormSettings.clipAllWeights(1.0)]
    optimizer = popart.SGD({}, clip_norm_settings=clip)
    options = {"enableReplicatedGraphs": True, "replicatedGraphCount": 2, "useHostCopyOps": True}
    ops = types(ir_of(two_products, ipus=2, optimizer=optimizer, **options)["maingraph"])
    assert ops[:2] == ["Init", "HostLoadInplace"]
    assert ops[-1] == "HostStore"
    assert [ops.count(type) for type in ("ReplicatedAllReduceInplace", "ReduceSumSquare", "Div")] == [2, 2, 1]


def test_pipelines_copy_stash_and_restore() -> None:
    def build(b: popart.Builder) -> str:
        h = b.addInputTensor("FLOAT", [4, 4])
        for ipu in range(2):
            with b.virtualGraph(ipu):
                h = b.aiOnnx.relu([b.aiOnnx.matmul([h, b.addInitializedInputTensor(np.ones((4, 4), np.float32))])])
        with b.virtualGraph(1):
            labels = b.addInputTensor("INT32", [4])
            return str(b.aiGraphcore.nllloss([b.aiOnnx.softmax([h]), labels]))

    manual = {"virtualGraphMode": popart.VirtualGraphMode.Manual, "enablePipelining": True, "accumulate": 3}
    ops = ir_of(build, ipus=2, **manual)["maingraph"]
    by_type: dict[str, list[dict[str, Any]]] = {}
    for op in ops:
        by_type.setdefault(op["type"], []).append(op)
    assert {type: len(by_type[type]) for type in ("IpuCopy", "Stash", "RestoreInplace")} == {
        "IpuCopy": 2,
        "Stash": 2,
        "RestoreInplace": 2,
    }
    forward, backward = by_type["IpuCopy"]
    assert forward["outputs"][0]["name"] == "Relu:0_c1"
    stages = [(op["attributes"]["__pipeline_stage"], op["attributes"]["__ipu_number"]) for op in (forward, backward)]
    assert stages == [("0", "0"), ("1", "1")]
    assert {op["attributes"]["__pipeline_stage"] for op in by_type["RestoreInplace"]} == {"2"}
    assert len(by_type["NlllWithSoftmaxGradDirect"][0]["outputs"]) == 2


def test_recomputed_ops_say_so() -> None:
    ops = ir_of(two_products, autoRecomputation=popart.RecomputationType.RecomputeAll)["maingraph"]
    flags = {op["attributes"]["recompute"] for op in ops[:6]}
    assert flags == {"YES"}
    explicit = {"autoRecomputation": popart.RecomputationType.RecomputeAll, "explicitRecomputation": True}
    kinds = {op["attributes"]["recomputetype"] for op in ir_of(two_products, **explicit)["maingraph"]}
    assert kinds == {"Checkpoint", "Recompute", "Recomputed"}


def test_repeated_layers_are_outlined() -> None:
    b = popart.Builder()
    loss = two_products(b)
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.SGD({}), device)
    ir = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    assert types(ir["maingraph"])[:3] == ["Call", "Call", "L1"]
    assert ir["maingraph"][0]["attributes"]["callee"] == "_subgraph(0)"
    assert types(ir["_subgraph(0)"]) == ["ReshapeInplace", "Reshape", "MatMul", "ReshapeInplace", "ReluInplace"]
    assert {op["attributes"]["__execution_context"] for op in ir["_subgraph(0)"]} == {"Subgraph"}


def test_the_graph_has_the_name_that_the_user_gave_it() -> None:
    def build(b: popart.Builder) -> str:
        b.setGraphName("mine")
        return str(b.aiOnnx.neg([b.addInputTensor("FLOAT", [4])]))

    assert list(ir_of(build, inference=True)) == ["mine"]


def test_calls_and_loops_of_inference_are_ops_with_graphs() -> None:
    def build(b: popart.Builder) -> str:
        x = b.addInputTensor("FLOAT", [2])
        body = b.createSubgraphBuilder()
        body.addOutputTensor(body.aiOnnx.neg([body.addInputTensor("FLOAT", [2])]))
        return str(b.aiOnnx.relu([b.aiGraphcore.call([x], 1, body)[0]]))

    ir = ir_of(build, inference=True)
    assert types(ir["maingraph"]) == ["Call", "ReluInplace"]
    assert types(ir[ir["maingraph"][0]["attributes"]["callee"]]) == ["Neg"]


def test_calls_of_a_training_step_are_ops_with_graphs() -> None:
    """Two calls of one subgraph, and a gradient of each."""

    def build(b: popart.Builder) -> str:
        w = b.addInitializedInputTensor(np.array([2, 3], np.float32), "w")
        body = b.createSubgraphBuilder()
        body.addOutputTensor(body.aiOnnx.exp([body.addInputTensor("FLOAT", [2])]))
        (y,) = b.aiGraphcore.call(b.aiGraphcore.call([w], 1, body), 1, body)
        return str(b.aiGraphcore.l1loss([y], 0.1))

    ir = ir_of(build)
    assert types(ir["maingraph"]) == ["Call", "Call", "L1", "L1Grad", "CallGrad", "CallGrad", "SGD0VarUpdate"]
    first, second, *_ = ir["maingraph"]
    assert first["attributes"]["callee"] == second["attributes"]["callee"]
    assert types(ir[first["attributes"]["callee"]]) == ["Exp"]
    assert types(ir[ir["maingraph"][4]["attributes"]["callee"]]) == ["Mul"]


def test_loops_and_branches_of_a_training_step_are_ops_with_graphs() -> None:
    def looped(b: popart.Builder) -> str:
        w = b.addInitializedInputTensor(np.array([2, 3], np.float32), "w")
        count = b.aiOnnx.constant(np.array(3, np.int32))
        body = b.createSubgraphBuilder()
        body.addInputTensor("INT32", [])
        going = body.addInputTensor("BOOL", [])
        state = body.addInputTensor("FLOAT", [2])
        body.addOutputTensor(going)
        body.addOutputTensor(body.aiOnnx.sigmoid([state]))
        return str(b.aiGraphcore.l1loss(b.aiOnnx.loop([count, "", w], 1, body), 0.1))

    def branched(b: popart.Builder) -> str:
        w = b.addInitializedInputTensor(np.array([2, 3], np.float32), "w")
        sides = b.createSubgraphBuilder(), b.createSubgraphBuilder()
        sides[0].addOutputTensor(sides[0].aiOnnx.neg([w]))
        sides[1].addOutputTensor(sides[1].aiOnnx.exp([w]))
        chosen = b.aiOnnx.logical_if([b.addInputTensor("BOOL", [])], 1, *sides)
        return str(b.aiGraphcore.l1loss(chosen, 0.1))

    for build, type, bodies in (
        (looped, "Loop", {"body": ["Sigmoid"]}),
        (branched, "If", {"else_branch": ["Neg"], "then_branch": ["Exp"]}),
    ):
        ir = ir_of(build)
        (op,) = [op for op in ir["maingraph"] if op["type"] == type]
        for key, wanted in bodies.items():
            assert types(ir[op["attributes"][key]])[: len(wanted)] == wanted
        assert f"{type}Grad" in types(ir["maingraph"])
