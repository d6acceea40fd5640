"""Automatic loss scaling: the factor depends on the gradients, and affects no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import device, options
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

METHOD = popart.GradientTensorTrackingMethod
FACTOR, FINAL, STATISTICS = "lossScaleUpdateFactor", "finalLossScale", "Accum___autoLossScaleStats"


def settings(**values: Any) -> Any:
    return popart.AutomaticLossScalingSettings(enabled=True, **values)


class Scaled:
    """loss = sum(x * w) with half-precision w, so that the gradient is x times the loss scaling."""

    def __init__(self, dtype: Any = np.float16, scaling: float = 64.0, *, constant: bool = False) -> None:
        self.dtype = dtype
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor(popart.TensorInfo(dtype, [4]))
        self.w = self.builder.addInitializedInputTensor(np.zeros(4, dtype))
        product = self.builder.aiOnnx.mul([self.x, self.w])
        self.loss = self.builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
        self.optimizer = popart.SGD(
            {
                "defaultLearningRate": (0.125, False),
                "defaultMomentum": (0.5, True),
                "lossScaling": (scaling, constant),
            }
        )

    @property
    def model(self) -> tuple[Any, ...]:
        anchors = {id: popart.AnchorReturnType("Final") for id in (FACTOR, FINAL, self.w)}
        return self.builder.getModelProto(), popart.DataFlow(1, anchors), self.loss, self.optimizer

    def session(self, opts: Any, model: tuple[Any, ...] | None = None) -> Any:
        session = popart.TrainingSession(*(model or self.model), device(opts), userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def factors(self, sizes: list[float], **values: Any) -> list[float]:
        """The factor after each step whose data has these sizes."""
        factors = []
        session = self.session(options(automaticLossScalingSettings=settings(**values)))
        for size in sizes:
            anchors = session.initAnchorArrays()
            session.run(popart.PyStepIO({self.x: np.full(4, size, self.dtype)}, anchors))
            factors.append(float(anchors[FACTOR]))
        return factors


def test_the_factor_follows_the_gradients() -> None:
    """Edge 0.125 of 65504 is 8188; a gradient of 100 is scaled by 64 f, and overflows from f = 16 on."""
    assert Scaled().factors([1.0] * 4) == [2, 4, 8, 16]
    assert Scaled().factors([100.0, 100.0, 100.0, 1.0]) == [2, 1, 2, 4]
    assert Scaled().factors([100.0] * 4, binEdgeLocation=0.5) == [2, 4, 8, 4]
    assert Scaled().factors([100.0] * 6, binEdgeLocation=1.0) == [2, 4, 8, 16, 8, 16]
    assert Scaled().factors([1.0] * 7, updatePeriod=3) == [2, 2, 2, 4, 4, 4, 8]
    assert Scaled(scaling=2.0**18).factors([1.0] * 6, binEdgeLocation=1.0) == [0.5, 0.25, 0.125, 0.25, 0.125, 0.25]


def test_a_share_of_large_elements_is_allowed() -> None:
    model = Scaled()
    for most, want in ((0.3, 2.0), (0.2, 0.5)):
        session = model.session(
            options(
                automaticLossScalingSettings=settings(
                    thresholdUpperCountProportion=most,
                    toTrackTensors=[model.w],
                    gradientTensorTrackingMethod=METHOD.GradientsOfUserSpecifiedTensors,
                )
            )
        )
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({model.x: np.array([1000, 1, 1, 1], np.float16)}, anchors))
        assert float(anchors[FACTOR]) == want


@pytest.mark.parametrize("values", [{}, {"A": 3}, {"R": 2}, {"A": 3, "R": 2}])
def test_automatic_loss_scaling_changes_no_result(values: dict[str, int]) -> None:
    """Powers of two are exact."""
    model = Scaled()
    A, R = values.get("A", 1), values.get("R", 1)
    plain = (model.builder.getModelProto(), popart.DataFlow(1, [model.w]), model.loss, model.optimizer)
    sessions = [
        model.session(options(**values), plain),
        model.session(options(automaticLossScalingSettings=settings(), **values)),
    ]
    for step in range(5):
        data = np.random.default_rng(step).standard_normal((A, R, 4)).astype(np.float16)
        for session in sessions:
            session.run(popart.PyStepIO({model.x: data}, session.initAnchorArrays()))
    weights = [session.engine.read(model.w) for session in sessions]
    assert np.abs(weights[0]).max() > 0
    np.testing.assert_array_equal(weights[0], weights[1])


def test_instances_agree_on_the_factor() -> None:
    model = Scaled()
    data = np.array([[1, 1, 1, 1], [1000, 1, 1, 1]], np.float16)

    def work(instance: Instance) -> float:
        opts = instance.configure(options(automaticLossScalingSettings=settings()))
        session = session_on(instance, popart.TrainingSession, *model.model, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({model.x: np.ascontiguousarray(data[instance.offset])}, anchors))
        return float(anchors[FACTOR])

    assert on_instances((1, 1), work) == [0.5, 0.5]


def test_a_constant_loss_scaling_is_refused() -> None:
    with pytest.raises(popart.popart_exception) as error:
        Scaled(constant=True).session(options(automaticLossScalingSettings=settings()))
    assert error.value.args[0].startswith(
        "[AutomaticLossScale transform] The optimizer must have non-const loss scaling"
    )


@pytest.mark.parametrize("A", [1, 3])
def test_statistics_and_scale_are_anchors_in_float(A: int) -> None:
    """The statistics are summed over the micro-batches of a batch; a scale above 65504 is legal."""
    model = Scaled(scaling=2.0**17)
    tracked = settings(toTrackTensors=[model.w], gradientTensorTrackingMethod=METHOD.GradientsOfUserSpecifiedTensors)
    proto, _, loss, optimizer = model.model
    ids = [STATISTICS, "lossScaling_FLOAT16", FINAL]
    session = model.session(
        options(A=A, automaticLossScalingSettings=tracked), (proto, popart.DataFlow(1, ids), loss, optimizer)
    )
    anchors = session.initAnchorArrays()
    assert {array.dtype for array in anchors.values()} == {np.dtype(np.float32)}
    data = np.full((A, 4), [1, 0, 0, 0], np.float16)
    session.run(popart.PyStepIO({model.x: np.ones((A, 4), np.float16)}, anchors))
    statistics = [anchors[id].reshape(A, -1).tolist() for id in ids]
    assert statistics == [[[0, 4 * a + 4] for a in range(A)], [[2.0**17]] * A, [[2.0**17]] * A]
    session.run(popart.PyStepIO({model.x: data}, anchors))
    assert anchors[FINAL].reshape(-1)[0] == 2.0**16


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"binEdgeLocation": 1.5}, "[AutomaticLossScale transform] Out of range value for 'binEdgeLocation'. The"),
        (
            {"thresholdUpperCountProportion": -1},
            "Out of range value for 'thresholdUpperCountProportion'. The current",
        ),
        ({"updatePeriod": 0}, "[AutomaticLossScale transform] updatePeriod is 0"),
        ({"toTrackTensors": ["w"]}, "[AutomaticLossScale transform] toTrackTensors has been set, but gradientTensor"),
        (
            {"gradientTensorTrackingMethod": METHOD.GradientsOfUserSpecifiedTensors},
            "[AutomaticLossScale transform] No tracked gradient tensors of type fp16 were found.",
        ),
        (
            {"gradientTensorTrackingMethod": METHOD.ConvAndMatmulGradients},
            "[AutomaticLossScale transform] No tracked gradient tensors of type fp16 were found.",
        ),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(popart.popart_exception) as error:
        Scaled().session(options(automaticLossScalingSettings=settings(**values)))
    assert error.value.args[0].startswith(text)


def test_models_that_are_refused() -> None:
    named = settings(
        toTrackTensors=["init_input"], gradientTensorTrackingMethod=METHOD.GradientsOfUserSpecifiedTensors
    )
    for chosen, text in (
        (settings(), "No tracked gradient tensors"),
        (named, "Unsupported data type FLOAT for to-t"),
    ):
        with pytest.raises(popart.popart_exception, match=text):
            Scaled(np.float32).session(options(automaticLossScalingSettings=chosen))
    proto, flow, _, _ = Scaled().model
    opts = options(automaticLossScalingSettings=settings())
    with pytest.raises(popart.popart_exception, match="Only compatible when doing training"):
        popart.InferenceSession(proto, flow, device(opts), userOptions=opts)


def test_the_loss_scaling_may_be_a_float_without_adapting() -> None:
    model = Scaled(scaling=2.0**17)
    proto, _, loss, optimizer = model.model
    flow = popart.DataFlow(1, ["lossScaling_FLOAT16"])
    anchors = model.session(
        options(ensureFp32LossScaleTensor=True), (proto, flow, loss, optimizer)
    ).initAnchorArrays()
    assert anchors["lossScaling_FLOAT16"].dtype == np.float32


def test_a_pipeline_counts_in_every_stage() -> None:
    builder = popart.Builder()
    x = y = builder.addInputTensor("FLOAT16", [2, 2])
    for stage in range(2):
        w = builder.addInitializedInputTensor(np.ones((2, 2), np.float16), f"w{stage}")
        with builder.virtualGraph(stage), builder.pipelineStage(stage):
            y = builder.aiOnnx.matmul([y, w])
            if stage:
                loss = builder.aiGraphcore.l1loss([y], 0.5)
    tracked = settings(gradientTensorTrackingMethod=METHOD.ConvAndMatmulGradients)
    opts = options(A=3, enablePipelining=True, automaticLossScalingSettings=tracked)
    opts.virtualGraphMode = popart.VirtualGraphMode.Manual
    machine = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    optimizer = popart.SGD({"lossScaling": (8.0, False)})
    flow = popart.DataFlow(1, {FINAL: popart.AnchorReturnType("Final"), STATISTICS: popart.AnchorReturnType("Final")})
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, machine, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    anchored = []
    for _ in range(2):
        session.run(popart.PyStepIO({x: np.ones((3, 2, 2), np.float16)}, anchors))
        anchored.append((float(anchors[FINAL]), anchors[STATISTICS].tolist()))
    assert anchored == [(8, [36, 0]), (16, [36, 0])]


@pytest.mark.parametrize("A", [1, 3])
@pytest.mark.parametrize(
    ("make", "inverse"),
    [
        (lambda values: popart.SGD({"defaultLearningRate": (0.5, False), **values}), 0.5 / 64),
        (lambda values: popart.SGD({"defaultMomentum": (0.5, True), **values}), 1 / 64),
        (popart.Adam, 1 / 64),
        (popart.Adaptive, 1 / 64),
    ],
)
def test_inverse_scales_are_anchors(make: Any, inverse: float, A: int) -> None:
    model = Scaled()
    optimizer, ids = make({"lossScaling": (64.0, False)}), ["finalInverseLossScale_0", FINAL]
    session = model.session(
        options(A=A, automaticLossScalingSettings=settings()),
        (model.builder.getModelProto(), popart.DataFlow(2, ids), model.loss, optimizer),
    )
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({model.x: np.ones((2, A, 4), np.float16)}, anchors))
    inverses = [anchors[id].reshape(2, A).tolist() for id in ids]
    assert inverses == [[[inverse] * A, [inverse / 2] * A], [[64.0] * A, [128.0] * A]]


@pytest.mark.parametrize("kind", ["l1", "identity", "nll", "log", "elements", "reduced", "scaled", "sum", "added"])
@pytest.mark.parametrize("automatic", [True, False])
def test_a_mean_has_its_share_of_a_scale_above_the_range(kind: str, automatic: bool) -> None:
    """2**18 is no FLOAT16, but 2**18 divided by 256 elements is one."""
    values = {"automaticLossScalingSettings": settings()} if automatic else {"ensureFp32LossScaleTensor": True}
    results = {}
    for dtype, opts in ((np.float32, options()), (np.float16, options(**values))):
        builder = popart.Builder()
        w = builder.addInitializedInputTensor(np.full((64, 4), 0.5, dtype), "w")
        loss = _mean_loss(builder, builder.aiOnnx.mul([w, builder.aiOnnx.constant(np.full((64, 4), 2, dtype))]), kind)
        optimizer = popart.SGD({"lossScaling": (2.0**18, False)})
        flow = popart.DataFlow(1, ["Gradient___w", "w"])
        proto = builder.getModelProto()
        session = popart.TrainingSession(proto, flow, loss, optimizer, device(opts), userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        results[dtype] = session.initAnchorArrays()
        session.run(popart.PyStepIO({}, results[dtype]))
    for id, want in results[np.float32].items():
        assert results[np.float16][id].dtype == np.float16
        np.testing.assert_allclose(results[np.float16][id], want, rtol=1e-3)


def _mean_loss(builder: popart.Builder, y: str, kind: str) -> str:
    onnx, graphcore, none = builder.aiOnnx, builder.aiGraphcore, popart.ReductionType.NoReduction
    labels = onnx.constant(np.arange(64, dtype=np.int32) % 4)
    l1 = graphcore.l1loss([y], 0.5)
    return {
        "l1": lambda: l1,
        "identity": lambda: graphcore.identityloss([y]),
        "nll": lambda: graphcore.nllloss([onnx.softmax([y]), labels]),
        "log": lambda: graphcore.nllloss([onnx.logsoftmax([y]), labels], inputIsLogProbability=True),
        "elements": lambda: graphcore.identityloss([graphcore.l1loss([y], 0.5, none)]),
        "reduced": lambda: onnx.reducemean([y], keepdims=0),
        "scaled": lambda: graphcore.scale([l1], 0.5),
        "sum": lambda: onnx.sum([l1, graphcore.identityloss([y])]),
        "added": lambda: onnx.add([l1, graphcore.identityloss([y])]),
    }[kind]()


@pytest.mark.parametrize("values", [{}, {"A": 2}, {"R": 2}])
def test_numbers_are_counted_in_the_batches_that_change_the_factor(values: dict[str, int]) -> None:
    model = Scaled()
    A, R = values.get("A", 1), values.get("R", 1)
    proto, _, *others = model.model
    flow = popart.DataFlow(5, {STATISTICS: popart.AnchorReturnType("All")})
    chosen = options(**values, automaticLossScalingSettings=settings(updatePeriod=2))
    session = model.session(chosen, (proto, flow, *others))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({model.x: np.ones((5, A, R, 4), np.float16)}, anchors))
    last = anchors[STATISTICS].reshape(5, A, R, 2)[:, -1].sum(-1)
    assert [bool(batch.all()) for batch in last] == [True, False, True, False, True]
    assert not last[1::2].any()
