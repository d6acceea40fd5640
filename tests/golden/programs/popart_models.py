"""PopART models: ten networks of the Builder and of ipu_emu.models, trained or run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import popdist_py
import popdist_py.popart
from ipu_emu import models, popart
from ipu_emu.models import Model
from tests.golden.exact_values import integers, numbers, weight, with_exact_weights
from tests.golden.program import Program, digests
from tests.ipu_emu.helpers.pipelined_models import PIPELINE
from tests.ipu_emu.helpers.sessions import options

__all__ = ["PROGRAMS", "Inputs", "inferred", "trained"]

#: Type and shape of a micro-batch of each input, with the bound of integers.
Inputs = Mapping[str, tuple[str, Sequence[int], int]]

MOMENTUM = popart.SGD({"defaultLearningRate": (0.125, False), "defaultMomentum": (0.875, True)})
SCALED = popart.SGD({"defaultLearningRate": (0.0625, False), "lossScaling": (64.0, False)})
ADAM = popart.Adam({"defaultLearningRate": (0.01, False), "defaultWeightDecay": (0.125, False)})
LAMB = popart.Adam({"defaultLearningRate": (0.01, False)}, mode=popart.AdamMode.Lamb)


def trained(
    proto: bytes,
    inputs: Inputs,
    loss: str,
    *,
    optimiser: Any = MOMENTUM,
    steps: int = 3,
    ipus: int = 1,
    A: int = 1,
    R: int = 1,
    **values: Any,
) -> dict[str, str]:
    """Train for some steps; the digests of the losses of all micro-batches, and of the weights.

    In a job, its replicas are the ``R`` replicas.
    """
    opts, local, first = options(A=A, R=R, **values), R, 0
    if R > 1 and popdist_py.isPopdistEnvSet():
        popdist_py.init()
        popdist_py.popart.configureSessionOptions(opts)
        local, first = popdist_py.getNumLocalReplicas(), popdist_py.getReplicaIndexOffset()
        device = popdist_py.popart.getDevice()
    else:
        device = _device(ipus * R)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(proto, flow, loss, optimiser, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    anchors, losses = session.initAnchorArrays(), []
    for step in range(steps):
        own = slice(first, first + local)
        data = {id: value[:, own].copy() for id, value in _data(inputs, step, (A, R)).items()}
        session.run(popart.PyStepIO(data, anchors))
        micro_losses = anchors[loss].reshape(A, local)
        losses += (popdist_py.allGather(micro_losses).swapaxes(0, 1) if local < R else micro_losses).ravel().tolist()
    session.weightsToHost()
    micro_losses = digests(losses=losses, weights=session)
    session.close()
    return micro_losses


def inferred(proto: bytes, inputs: Inputs, outputs: Sequence[str], **values: Any) -> dict[str, str]:
    """Run two steps; the digests of the results of both."""
    session = popart.InferenceSession(
        proto, popart.DataFlow(1, list(outputs)), _device(1), userOptions=options(**values)
    )
    session.prepareDevice()
    anchors, results = session.initAnchorArrays(), {}
    for step in range(2):
        session.run(popart.PyStepIO(_data(inputs, step, ()), anchors))
        results |= {f"{name} {step}": value.copy() for name, value in anchors.items()}
    session.close()
    return digests(results=results)


def _device(ipus: int) -> Any:
    return popart.DeviceManager().createSimDevice({"numIPUs": ipus, "tilesPerIPU": 1472})


def _data(inputs: Inputs, step: int, prefix: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The data of a step, [accumulation, replicas, micro-batch...]."""
    data: dict[str, Any] = {}
    for id, (kind, shape, below) in inputs.items():
        name, full = f"{id} {step}", (*prefix, *shape)
        data[id] = integers(name, full, below) if below else numbers(name, full)
        data[id] = data[id].astype(kind)
    return data


# Networks of ipu_emu.models


def _inputs(model: Model, below: int) -> Inputs:
    """The inputs of a model; labels and tokens are below ``below``."""
    inputs = {}
    for id in model.graph.inputs:
        tensor = model.graph.tensor(id)
        kind = np.dtype(tensor.dtype.numpy)
        bound = (2 if id in model.others else below) if kind.kind == "i" else 0
        inputs[id] = kind.name, tensor.shape, bound
    return inputs


def _train(model: Model, below: int, **how: Any) -> dict[str, str]:
    return trained(with_exact_weights(model.proto), _inputs(model, below), model.loss, **how)


_TEXT = {"batch": 2, "layers": 1, "width": 32, "heads": 2, "length": 8, "vocabulary": 40}


def _mlp() -> dict[str, str]:
    return _train(models.mlp((20, 33, 16, 5), batch=6), 5)


def _resnet() -> dict[str, str]:
    return _train(models.resnet8(batch=2), 10, steps=2)


def _gpt2() -> dict[str, str]:
    return _train(models.gpt2(context=8, dtype=np.float16, **_TEXT), 40, optimiser=SCALED)


def _bert() -> dict[str, str]:
    return _train(models.bert(context=8, **_TEXT), 40, optimiser=LAMB)


def _transformer() -> dict[str, str]:
    return _train(models.transformer(**_TEXT), 40, optimiser=ADAM, A=2)


def _vit() -> dict[str, str]:
    model = models.vit(batch=2, layers=1, width=32, heads=2, size=16, patch=4, classes=10)
    shapes = {model.data: ("float32", (2, 3, 16, 16), 0), model.labels: ("int32", (2,), 10)}
    return inferred(with_exact_weights(model.proto), shapes, [model.output, model.loss])


# Networks of the Builder


class _Built:
    """A network of the Builder with one input, and labels below ``classes``."""

    def __init__(self, shape: Sequence[int], labels: Sequence[int], classes: int, kind: str = "FLOAT") -> None:
        self.builder, self.kind = popart.Builder(), kind
        self.onnx, self.graphcore = self.builder.aiOnnx, self.builder.aiGraphcore
        self.dtype = {"FLOAT": "float32", "FLOAT16": "float16"}[kind]
        self.x = self.builder.addInputTensor(kind, list(shape))
        self.labels = self.builder.addInputTensor("INT32", list(labels))
        self.inputs = {self.x: (self.dtype, shape, 0), self.labels: ("int32", labels, classes)}

    def weight(self, name: str, *shape: int) -> str:
        return str(self.builder.addInitializedInputTensor(weight(name, shape).astype(self.dtype), name))

    def loss(self, y: str) -> str:
        return str(self.graphcore.nllloss([self.onnx.softmax([y]), self.labels]))

    def proto(self) -> bytes:
        return bytes(self.builder.getModelProto())

    def trained(self, loss: str, **how: Any) -> dict[str, str]:
        return trained(self.proto(), self.inputs, loss, **how)


def _tower(kind: str, how: Mapping[str, Any]) -> dict[str, str]:
    """Three stages with normalisation and dropout, as a pipeline of three IPUs with accumulation."""
    net = _Built((6, 8), (6,), 8, kind)
    y = net.x
    for stage in range(3):
        with net.builder.virtualGraph(stage), net.builder.pipelineStage(stage):
            h = net.onnx.gemm([y, net.weight(f"w{stage}", 8, 8), net.weight(f"b{stage}", 8)])
            h = net.graphcore.groupnormalization(
                [h, net.weight(f"{stage}/scale", 8), net.weight(f"shift{stage}", 8)], 2
            )
            h = net.onnx.dropout([net.onnx.tanh(h[:1])], 1, 0.25)[0]
            y = net.onnx.add([h, y])
            loss = net.loss(y) if stage == 2 else ""
    return net.trained(loss, ipus=3, A=6, **how)


def _spread() -> dict[str, str]:
    """Four replicas of a convolutional network, each of which computes statistics, and their mean gradient."""
    net = _Built((3, 2, 7, 7), (3,), 5)
    h = net.onnx.conv([net.x, net.weight("w", 8, 2, 3, 3)], pads=[1, 1, 1, 1])
    scales = [net.weight("n/scale", 8), net.weight("n/shift", 8)]
    statistics = [
        net.builder.addInitializedInputTensor(np.full(8, value, np.float32), name)
        for name, value in (("n/mean", 0.0), ("n/var", 1.0))
    ]
    h = net.onnx.relu([net.onnx.batchnormalization([h, *scales, *statistics], 5)[0]])
    y = net.onnx.matmul(
        [net.onnx.flatten([net.onnx.maxpool([h], 1, [3, 3], strides=[2, 2])[0]]), net.weight("h", 72, 5)]
    )
    return net.trained(net.loss(y), R=4, A=2, optimiser=ADAM)


def _recurrent() -> dict[str, str]:
    """An LSTM and a GRU."""
    net = _Built((5, 3, 6), (3,), 4)
    y = net.onnx.lstm([net.x, net.weight("w", 1, 32, 6), net.weight("r", 1, 32, 8), net.weight("b", 1, 64)], 3)[0]
    y = net.onnx.reshape([y, net.onnx.constant(np.array([5, 3, 8]))])
    y = net.onnx.gru([y, net.weight("gw", 1, 24, 8), net.weight("gr", 1, 24, 8)], 2)[1]
    y = net.onnx.matmul([net.onnx.reshape([y, net.onnx.constant(np.array([3, 8]))]), net.weight("head", 8, 4)])
    return net.trained(net.loss(y), optimiser=ADAM)


_FUNCTIONS = (
    "acos", "asin", "asinh", "atan", "cos", "cosh", "elu", "erf", "exp", "sigmoid", "selu", "sin", "sinh", "softplus",
    "softsign", "tan", "tanh",
)  # fmt: skip
_OF_POSITIVE = ("log", "reciprocal", "sqrt", "acosh")


def _functions(kind: str) -> dict[str, str]:
    """Every function of one element, powers, and random numbers."""
    net = _Built((3, 171), (3,), 3, kind)
    positive = net.onnx.add([net.onnx.abs([net.x]), net.onnx.constant(np.ones(1, net.dtype))])
    outputs = [getattr(net.onnx, name)([net.x]) for name in _FUNCTIONS]
    outputs += [getattr(net.onnx, name)([positive]) for name in _OF_POSITIVE]
    outputs += [getattr(net.graphcore, name)([net.x]) for name in ("expm1", "gelu", "geluerf", "swish")]
    outputs += [net.graphcore.log1p([positive]), net.graphcore.atan2([net.x, positive])]
    outputs += [net.onnx.pow([positive, net.x]), net.onnx.div([net.x, positive])]
    outputs += [net.onnx.randomnormallike([net.x]), net.onnx.dropout([net.x], 1, 0.25)[0]]
    for output in outputs:
        net.builder.addOutputTensor(output)
    return inferred(net.proto(), net.inputs, outputs)


_REDUCTIONS = ("l1", "l2", "logsum", "logsumexp", "max", "mean", "min", "prod", "sum", "sumsquare")


def _reductions(kind: str) -> dict[str, str]:
    """Every reduction along every axis, normalisations and pooling."""
    net = _Built((3, 5, 19, 21), (3,), 3, kind)
    positive = net.onnx.add([net.onnx.abs([net.x]), net.onnx.constant(np.ones(1, net.dtype))])
    results = [getattr(net.onnx, f"reduce{name}")([positive], axes, 0) for name in _REDUCTIONS for axes in _AXES]
    results += [net.onnx.softmax([net.x], axis) for axis in (1, 3)]
    results += [net.onnx.lrn([net.x], 3), net.onnx.lpnormalization([net.x], 1, 2)]
    results += [net.onnx.instancenormalization([net.x, net.weight("n/scale", 5), net.weight("shift", 5)])]
    results += [net.onnx.averagepool([net.x], [3, 3]), net.onnx.globalaveragepool([net.x])]
    for output in results:
        net.builder.addOutputTensor(output)
    return inferred(net.proto(), net.inputs, results)


_AXES = ([3], [2], [1], [2, 3], [0, 1, 2, 3])

_RUNS: dict[str, Callable[[], dict[str, str]]] = {
    "mlp": _mlp,
    "resnet8": _resnet,
    "gpt2, float16": _gpt2,
    "bert, LAMB": _bert,
    "transformer, Adam": _transformer,
    "vit, forward": _vit,
    "tower, pipeline": lambda: _tower("FLOAT", PIPELINE),
    "tower, pipeline, float16": lambda: _tower("FLOAT16", PIPELINE),
    "recurrent": _recurrent,
    "functions, forward": lambda: _functions("FLOAT"),
    "functions, forward, float16": lambda: _functions("FLOAT16"),
    "reductions, forward": lambda: _reductions("FLOAT"),
    "reductions, forward, float16": lambda: _reductions("FLOAT16"),
}

PROGRAMS = {
    **{f"popart: {name}": Program(run, quick=True) for name, run in _RUNS.items()},
    "popart: replicas": Program(_spread, quick=True, spread=True),
}
