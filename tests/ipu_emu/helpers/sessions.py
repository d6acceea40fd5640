"""Sessions: shortcuts from a function that builds a model to its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from ipu_emu import popart

__all__ = ["device_of", "infer", "of_another_program", "options", "train", "variables"]


def options(**values: Any) -> popart.SessionOptions:
    """SessionOptions with these values; R and A switch replication and accumulation on."""
    opts = popart.SessionOptions()
    replicas, factor = values.pop("R", 1), values.pop("A", 1)
    if replicas > 1:
        opts.enableReplicatedGraphs, opts.replicatedGraphCount = True, replicas
    if factor > 1:
        opts.enableGradientAccumulation, opts.accumulationFactor = True, factor
    for name, value in values.items():
        setattr(opts, name, value)
    return opts


def device(opts: popart.SessionOptions) -> popart.DeviceInfo:
    return device_of(opts.localReplicas(), opts.localReplicas())


def device_of(ipus: int, replicas: int) -> popart.DeviceInfo:
    """An IPU Model, or for several replicas, which that does not support, a simulator, whose memory has no limit."""
    manager = popart.DeviceManager()
    make = manager.createSimDevice if replicas > 1 else manager.createIpuModelDevice
    return make({"numIPUs": ipus, "tilesPerIPU": 1472})


def of_another_program(proto: bytes) -> bytes:
    """The model as if of another program: without the limits of PopART's Builder."""
    model = onnx.load_model_from_string(proto)
    model.producer_name = "tests"
    return model.SerializeToString()


def infer(
    builder: popart.Builder,
    flow: popart.DataFlow,
    inputs: Mapping[str, Any],
    opts: popart.SessionOptions | None = None,
) -> dict[str, Any]:
    """One step of inference."""
    opts = opts or options()
    session = popart.InferenceSession(builder.getModelProto(), flow, device(opts), userOptions=opts)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(inputs), anchors))
    return anchors


def train(
    builder: popart.Builder,
    flow: popart.DataFlow,
    loss: str,
    optimizer: popart.SGD,
    opts: popart.SessionOptions | None = None,
    *,
    limits: bool = True,
) -> popart.TrainingSession:
    """A prepared training session; without ``limits`` it runs ops that PopART refuses."""
    opts = opts or options()
    proto = builder.getModelProto() if limits else of_another_program(builder.getModelProto())
    session = popart.TrainingSession(proto, flow, loss, optimizer, device(opts), userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    return session


def variables(session: popart.TrainingSession) -> dict[str, np.ndarray]:
    """The weights and optimiser states on the device, by id."""
    arrays = {
        id: np.zeros(tensor.unsharded.shape, tensor.dtype.numpy)
        for id, tensor in session.executable.graph.tensors.items()
        if tensor.role.is_variable
    }
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(arrays))
    return arrays
