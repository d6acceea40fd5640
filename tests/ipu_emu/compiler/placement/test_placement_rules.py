"""Placement: virtual graphs, pipelining, recomputation and tensor locations change no result; their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options

MANUAL, AUTO = popart.VirtualGraphMode.Manual, popart.VirtualGraphMode.Auto
TWO_STAGES = {"enablePipelining": True, "virtualGraphMode": MANUAL}
EXPLICIT = {**TWO_STAGES, "useHostCopyOps": True, "enableExplicitMainLoops": True, "explicitRecomputation": True}
W0 = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)


class Layers:
    """Two layers and a loss, on virtual graphs ``graphs`` and in pipeline stages ``stages`` (None: not annotated)."""

    def __init__(
        self, graphs: Any = (0, 1), stages: Any = (0, 1), *, tied: bool = False, reread: bool = False
    ) -> None:
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor("FLOAT", [4, 3])
        self.weights = [builder.addInitializedInputTensor(W0[i], f"w{i}") for i in range(2)]
        h = self.placed(graphs, stages, 0, builder.aiOnnx.matmul([self.x, self.weights[0]]))
        h = self.placed(graphs, stages, 0, builder.aiOnnx.tanh([h]))
        y = self.placed(graphs, stages, 1, builder.aiOnnx.matmul([h, self.weights[0 if tied else 1]]))
        if reread:
            y = self.placed(graphs, stages, 1, builder.aiOnnx.add([y, self.x]))
        self.loss = self.placed(graphs, stages, 1, builder.aiGraphcore.l1loss([y], 0.5))

    def placed(self, graphs: Any, stages: Any, index: int, id: str) -> str:
        for annotate, values in ((self.builder.virtualGraph, graphs), (self.builder.pipelineStage, stages)):
            if values is not None and values[index] is not None:
                annotate({id}, values[index])
        return id

    def session(self, *, ipus: int = 2, bps: int = 1, anchor: Any = ("All",), **values: Any) -> Any:
        opts = options(**values)
        flow = popart.DataFlow(bps, {self.loss: popart.AnchorReturnType(*anchor)})
        device = popart.DeviceManager().createSimDevice({"numIPUs": ipus, "tilesPerIPU": 1472})
        session = popart.TrainingSession(
            self.builder.getModelProto(), flow, self.loss, popart.ConstSGD(0.1), device, userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def trained(self, *, bps: int = 2, A: int = 4, R: int = 1, **values: Any) -> list[np.ndarray]:
        """Losses and weights after two steps."""
        session = self.session(bps=bps, A=A, R=R, **values)
        anchors, losses = session.initAnchorArrays(), []
        random = np.random.default_rng(3)
        for _ in range(2):
            data = random.standard_normal((bps, A, R, 4, 3)).astype(np.float32)
            session.run(popart.PyStepIO({self.x: data}, anchors))
            losses.append(anchors[self.loss].copy())
        arrays = {id: np.zeros((3, 3), np.float32) for id in self.weights}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(arrays))
        return [*losses, *arrays.values()]


def off_chip(sharded: bool) -> popart.TensorLocationSettings:
    sharding = popart.ReplicatedTensorSharding.On if sharded else popart.ReplicatedTensorSharding.Off
    return popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip, sharding), 0, 0)


PLACEMENTS: dict[str, dict[str, Any]] = {
    "virtual graphs": {"virtualGraphMode": MANUAL},
    "virtual graphs chosen": {"virtualGraphMode": AUTO},
    "pipeline": TWO_STAGES,
    "pipeline with recomputation": {**TWO_STAGES, "autoRecomputation": popart.RecomputationType.Pipeline},
    "explicit pipeline": EXPLICIT,
    "explicit loops": {
        "virtualGraphMode": MANUAL,
        "useHostCopyOps": True,
        "enableExplicitMainLoops": True,
        "explicitRecomputation": True,
    },
    "execution phases": {"virtualGraphMode": popart.VirtualGraphMode.ExecutionPhases},
    "recomputation": {"virtualGraphMode": MANUAL, "autoRecomputation": popart.RecomputationType.RecomputeAll},
    "off-chip weights": {"virtualGraphMode": MANUAL, "weightTensorLocationSettings": off_chip(False)},
    "sharded states": {"virtualGraphMode": MANUAL, "optimizerStateTensorLocationSettings": off_chip(True)},
}


@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.parametrize("name", PLACEMENTS)
def test_placement_changes_no_number(name: str, R: int) -> None:
    plain = Layers(None, None).trained(R=R, ipus=R)
    placed = Layers().trained(R=R, ipus=2 * R, **PLACEMENTS[name])
    for array, other in zip(plain, placed, strict=True):
        np.testing.assert_array_equal(array, other)


def test_a_pipelined_inference_needs_no_accumulation() -> None:
    layers = Layers()
    flow = popart.DataFlow(2, [layers.loss])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 1472})
    opts = options(**TWO_STAGES)
    session = popart.InferenceSession(layers.builder.getModelProto(), flow, device, userOptions=opts)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    session.run(popart.PyStepIO({layers.x: data}, anchors))
    want = [0.5 * np.abs(np.tanh(x @ W0[0]) @ W0[1]).mean() for x in data]
    np.testing.assert_allclose(anchors[layers.loss], want, rtol=1e-5)


ERRORS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one IPU": (
        {},
        {**TWO_STAGES, "A": 4, "ipus": 1},
        "Pipelining requires more than 1 IPU (currently 1) and the 'virtualGraphMode' session option to not be "
        "VirtualGraphMode::Off (currently VirtualGraphMode::Manual). Give each replica 2 IPUs or more: "
        "acquireAvailableDevice(2).",
    ),
    "virtual graphs off": (
        {},
        {"enablePipelining": True, "A": 4},
        "Pipelining requires more than 1 IPU (currently 2) and the 'virtualGraphMode' session option to not be "
        "VirtualGraphMode::Off (currently VirtualGraphMode::Off).",
    ),
    "explicit, virtual graphs off": (
        {},
        {**EXPLICIT, "virtualGraphMode": popart.VirtualGraphMode.Off, "A": 4},
        "Pipelining requires the 'virtualGraphMode' session option to not be VirtualGraphMode::Off.",
    ),
    "explicit, host copies missing": (
        {},
        {**EXPLICIT, "useHostCopyOps": False, "A": 4},
        "SessionOption 'useHostCopyOps' must be true.",
    ),
    "explicit, loops missing": (
        {},
        {**EXPLICIT, "enableExplicitMainLoops": False, "A": 4},
        "SessionOption 'enableExplicitMainLoops' must be true.",
    ),
    "explicit, recomputation missing": (
        {},
        {**EXPLICIT, "explicitRecomputation": False, "A": 4},
        "SessionOption 'explicitRecomputation' must be true.",
    ),
    "stages missing": (
        {"stages": (0, None)},
        {**TWO_STAGES, "A": 4},
        "Only some ops have had their pipeline stage set. Ops missing the pipeline stage:\n",
    ),
    "negative stage": ({"stages": (-2, 1)}, {**TWO_STAGES, "A": 4}, "Op has bad pipeline stage -2"),
    "gap": (
        {"stages": (0, 2)},
        {**TWO_STAGES, "A": 8},
        "The set of pipeline stages for all Ops contains 2 stages, but stage 1 is missing",
    ),
    "too few micro-batches": (
        {},
        {**TWO_STAGES, "A": 2},
        "For pipelining, depth (gradient accumulation factor) must equal at least the number of pipeline stages (3)",
    ),
    "too few batches": (
        {},
        {**TWO_STAGES, "bps": 2},
        "For pipelining, depth (batchesPerStep) must equal at least the number of pipeline stages (3)",
    ),
    "order": (
        {"graphs": (1, 0), "stages": None},
        {**TWO_STAGES, "A": 4},
        "Tensor Tanh:0 is consumed in an earlier pipeline stage than it is produced.\nProducer: ",
    ),
    "weight on two IPUs": (
        {"tied": True},
        {**TWO_STAGES, "A": 4},
        "Can not copy variable tensor w0 between virtual graphs when pipelining. All pipeline stages using this "
        "tensor should be on the same graph.",
    ),
    "every n": (
        {},
        {**TWO_STAGES, "A": 4, "bps": 2, "anchor": ("EveryN", 2)},
        "AnchorReturnType::EVERYN is not valid for pipelined models",
    ),
    "every n, explicit": (
        {},
        {**EXPLICIT, "A": 4, "bps": 2, "anchor": ("EveryN", 2)},
        "[Explicit Pipeline] Cannot execute when an anchor has AnchorReturnType 'EveryN'",
    ),
    "every n, loops": (
        {"graphs": None, "stages": None},
        {"useHostCopyOps": True, "enableExplicitMainLoops": True, "bps": 2, "ipus": 1, "anchor": ("EveryN", 2)},
        '[MainLoops] AnchorReturnType::EVERYN for Tensor "L1:0" is unsupported when explicit main loops are enabled. '
        "Supported anchor return types are AnchorReturnTypeId::All and AnchorReturnTypeId::Sum.",
    ),
    "no accumulation, not PopART's schedule": (
        {},
        {**TWO_STAGES, "bps": 4, "pipelineSchedule": "grouped"},
        "Continuous weight updates are currently not supported. The schedule is grouped; set ",
    ),
    "loss scaling without accumulation": (
        {},
        {**TWO_STAGES, "bps": 4, "automaticLossScalingSettings": popart.AutomaticLossScalingSettings(True)},
        "[AutomaticLossScale transform] Automatic loss scaling is not currently supported when the "
        "'enablePipelining' SessionOption is set to 'true', but the 'enableGradientAccumulation' SessionOption is "
        "set to 'false'",
    ),
    "forward only, explicit": (
        {},
        {**EXPLICIT, "A": 4, "createImplicitPipeliningFwdOnlyProgram": True},
        "Implicit pipelining forward-only program is not supported with explicit pipelining.",
    ),
    "forward only, no pipeline": (
        {"graphs": None, "stages": None},
        {"A": 4, "ipus": 1, "createImplicitPipeliningFwdOnlyProgram": True},
        "Implicit pipelining forward-only program is not supported without implicit pipelining.",
    ),
    "forward only, no accumulation": (
        {},
        {**TWO_STAGES, "bps": 4, "createImplicitPipeliningFwdOnlyProgram": True},
        "Implicit pipelining forward-only program is not supported without gradient accumulation.",
    ),
    "one stage on two graphs": (
        {"stages": (0, 0)},
        {**TWO_STAGES, "A": 4},
        "Ops MatMul (MatMul:0), Tanh (Tanh:0), MatMul (MatMul:0/1), L1 (L1:0) have the same pipeline stage 0, but "
        "different virtual graph ids 0, 1. All ops with the same pipeline stage must also have the same virtual "
        "graph id",
    ),
    "graph that is not there": (
        {"graphs": (0, 2), "stages": None},
        {"virtualGraphMode": MANUAL},
        "MatMul (MatMul:0/1) has been assigned to an invalid virtual graph 2. numIPUs = 2.",
    ),
    "some graphs missing": (
        {"graphs": (0, None)},
        {"virtualGraphMode": MANUAL},
        "Either all Ops must have their virtual graph ids set, or none must. Op count per virtual graph id\n",
    ),
    "no graph at all": (
        {"graphs": None},
        {"virtualGraphMode": MANUAL},
        "SessionOptions flag virtualGraphMode is VirtualGraphMode::Manual, but no Ops have been annotated with "
        "virtual graph information. This is an inconsistent combination. ",
    ),
    "more IPUs than replicas": (
        {},
        {"ipus": 2},
        "If virtual graphs are disabled, the replicated graph count (1) needs to be equal to the number of IPUs (2)",
    ),
    "IPUs not divisible": (
        {},
        {"ipus": 3, "R": 2},
        "For replicated graphs, the number of IPUs must be divisible by the replication factor.",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    model, values, text = ERRORS[name]
    with pytest.raises(popart.popart_exception) as error:
        Layers(**model).session(**values)
    said = error.value.args[0]
    assert said.startswith(text) if text.endswith(("\n", "Producer: ", "; set ")) else said == text


def test_in_a_job_the_flag_of_the_launcher_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popdist_py.isPopdistEnvSet", lambda: True)
    with pytest.raises(popart.popart_exception, match=r"2 IPUs or more: poprun-py --ipus-per-replica 2\.$"):
        Layers().session(A=4, ipus=1, **TWO_STAGES)


def test_user_annotations_of_recomputation_do_not_go_with_a_pipeline() -> None:
    layers = Layers()
    layers.builder.recomputeOutputInBackwardPass({"Tanh:0"})
    with pytest.raises(popart.popart_exception) as error:
        layers.session(A=4, **TWO_STAGES)
    assert error.value.args[0] == "When pipelining is enabled, user annotation for recomputation is not allowed"
    assert layers.session(A=4, virtualGraphMode=MANUAL) is not None


def test_annotations_are_harmless_when_they_are_not_used() -> None:
    for array, other in zip(Layers(None, None).trained(ipus=1), Layers().trained(ipus=1), strict=True):
        np.testing.assert_array_equal(array, other)


def test_neighbouring_stages_on_one_graph_are_one() -> None:
    """Two stages on one graph are merged, so that one micro-batch is deep enough."""
    with pytest.raises(popart.popart_exception, match=r"number of pipeline stages \(3\)"):
        Layers().session(A=2, **TWO_STAGES)
    assert Layers(graphs=(0, 0)).session(A=2, **TWO_STAGES) is not None
