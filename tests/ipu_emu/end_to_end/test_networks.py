"""Whole networks: losses of 20 steps against PyTorch, the same bits for every layout, and training in two parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ipu_emu import popart
from tests.ipu_emu.helpers.networks import Network, cnn, mlp, torch_loss, transformer
from tests.ipu_emu.helpers.sessions import options, train
from tests.ipu_emu.helpers.threaded_instances import Instance, on_instances, session_on

NETWORKS: dict[str, Callable[[], Network]] = {"mlp": mlp, "cnn": cnn, "transformer": transformer}
SEPARATE = popart.SGDAccumulatorAndMomentum.Separate
L2 = popart.WeightDecayMode.L2Regularization


def adaptive(mode: Any, lr: float, **values: float) -> popart.Adaptive:
    keys = {"defaultLearningRate": (lr, False), "defaultEps": (1e-3, True), "defaultWeightDecay": (0.01, True)}
    return popart.Adaptive(keys | {key: (value, True) for key, value in values.items()}, mode, L2)


def adam(mode: Any, decay: Any) -> popart.Adam:
    keys = {"defaultLearningRate": (0.01, False), "defaultEps": (1e-3, True), "defaultWeightDecay": (0.01, True)}
    return popart.Adam(keys, mode, decay)


#: Ours, and PyTorch's with the same meaning.
OPTIMISERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "SGD": (
        lambda: popart.SGD({"defaultLearningRate": (0.1, False), "defaultWeightDecay": (0.01, True)}),
        lambda torch, p: torch.optim.SGD(p, 0.1, weight_decay=0.01),
    ),
    "momentum": (
        lambda: popart.SGD({"defaultLearningRate": (0.05, False), "defaultMomentum": (0.9, True)}),
        lambda torch, p: torch.optim.SGD(p, 0.05, 0.9),
    ),
    "Nesterov": (
        lambda: popart.SGD(
            {"defaultLearningRate": (0.05, False), "defaultMomentum": (0.9, True), "nesterov": (True, True)},
            accumulatorAndMomentum=SEPARATE,
        ),
        lambda torch, p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True),
    ),
    "Adam": (
        lambda: adam(popart.AdamMode.Adam, L2),
        lambda torch, p: torch.optim.Adam(p, 0.01, eps=1e-3, weight_decay=0.01),
    ),
    "AdamW": (
        lambda: adam(popart.AdamMode.Adam, popart.WeightDecayMode.Decay),
        lambda torch, p: torch.optim.AdamW(p, 0.01, eps=1e-3, weight_decay=0.01),
    ),
    "AdaMax": (
        lambda: adam(popart.AdamMode.AdaMax, L2),
        lambda torch, p: torch.optim.Adamax(p, 0.01, eps=1e-3, weight_decay=0.01),
    ),
    "AdaGrad": (
        lambda: adaptive(popart.AdaptiveMode.AdaGrad, 0.05),
        lambda torch, p: torch.optim.Adagrad(p, 0.05, weight_decay=0.01, eps=1e-3),
    ),
    "RMSProp": (
        lambda: adaptive(popart.AdaptiveMode.RMSProp, 0.01, defaultMomentum=0.5),
        lambda torch, p: torch.optim.RMSprop(p, 0.01, 0.99, 1e-3, 0.01, 0.5),
    ),
    "AdaDelta": (
        lambda: adaptive(popart.AdaptiveMode.AdaDelta, 1.0, defaultAlpha=0.9),
        lambda torch, p: torch.optim.Adadelta(p, 1.0, 0.9, 1e-3, 0.01),
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_losses_of_twenty_steps_are_those_of_pytorch(network: str, optimiser: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    torch.set_num_threads(1)
    net, (ours, theirs) = NETWORKS[network](), OPTIMISERS[optimiser]
    session = train(net.builder, popart.DataFlow(1, [net.loss]), net.loss, ours())
    parameters, loss_of = torch_loss(torch, net, network)
    other, losses, expected = theirs(torch, list(parameters.values())), [], []
    for step in range(20):
        data, anchors = net.step(step), session.initAnchorArrays()
        session.run(popart.PyStepIO(data, anchors))
        losses.append(float(anchors[net.loss]))
        other.zero_grad()
        loss = loss_of(data)
        loss.backward()
        other.step()
        expected.append(float(loss.detach()))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


LAYOUTS = ((8,), (4, 4), (2, 2, 2, 2), (1,) * 8)
CASES: dict[str, tuple[Callable[[], Network], Callable[[], Any]]] = {
    "MLP, Lamb": (mlp, lambda: adam(popart.AdamMode.Lamb, popart.WeightDecayMode.Decay)),
    "CNN with batch normalisation": (lambda: cnn(normalise=True), OPTIMISERS["momentum"][0]),
    "transformer with dropout": (lambda: transformer(dropout=True), lambda: adam(popart.AdamMode.Adam, L2)),
}


def results(net: Network, session: Any, offset: int, local: int, total: int) -> list[np.ndarray]:
    """Losses [2 steps, 2 batches, 2 micro-batches, local replicas], and the weights of the first replica after it."""
    losses = []
    for step in range(2):
        data, anchors = net.step(step, 2, 2, total), session.initAnchorArrays()
        own = {id: np.ascontiguousarray(value[:, :, offset : offset + local]) for id, value in data.items()}
        session.run(popart.PyStepIO(own, anchors))
        losses.append(anchors[net.loss].reshape(2, 2, local))
    session.weightsToHost()
    # Running means and variances are those of a replica's own data.
    return [np.array(losses), *(session.weightsByName()[id] for id in net.weights if id not in ("mean", "var"))]


@pytest.mark.parametrize("case", CASES)
def test_the_bits_do_not_depend_on_the_layout(case: str) -> None:
    """1 x 8, 2 x 4, 4 x 2 and 8 x 1 instances x replicas, as threads."""
    build, optimiser = CASES[case]

    def work(instance: Instance) -> list[np.ndarray]:
        net = build()
        opts = instance.configure(options(A=2, accumulationAndReplicationReductionType=popart.ReductionType.Mean))
        model = (net.builder.getModelProto(), popart.DataFlow(2, [net.loss]), net.loss, optimiser())
        session = session_on(instance, popart.TrainingSession, *model, userOptions=opts)
        session.prepareDevice()
        session.weightsFromHost()
        return results(net, session, instance.offset, instance.local, 8)

    by_layout = {counts: on_instances(counts, work) for counts in LAYOUTS}
    alone = by_layout[8,][0]
    assert np.isfinite(alone[0]).all()
    for instances in by_layout.values():
        losses = np.concatenate([instance[0] for instance in instances], axis=-1)
        np.testing.assert_array_equal(losses, alone[0])
        for instance in instances:
            for array, other in zip(instance[1:], alone[1:], strict=True):
                np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("optimiser", ["momentum", "Nesterov", "AdamW", "AdaMax", "RMSProp", "AdaDelta"])
def test_training_in_two_parts_is_training_in_one(tmp_path: Path, optimiser: str) -> None:
    """10 steps, save, load in a new session, 10 more: bitwise the weights and states of 20 steps."""
    net, make, file = cnn(), OPTIMISERS[optimiser][0], str(tmp_path / "model.onnx")
    flow = popart.DataFlow(1, [net.loss])

    def session(model: Any = None) -> Any:
        training = popart.TrainingSession(
            model or net.builder.getModelProto(), flow, net.loss, make(), popart.DeviceManager().createCpuDevice()
        )
        training.prepareDevice()
        training.weightsFromHost()
        return training

    def run(training: Any, steps: range) -> dict[str, np.ndarray]:
        for step in steps:
            training.run(popart.PyStepIO(net.step(step), training.initAnchorArrays()))
        training.modelToHost(file)
        return {
            initializer.name: numpy_helper.to_array(initializer) for initializer in onnx.load(file).graph.initializer
        }

    unbroken = run(session(), range(20))
    run(session(), range(10))
    rest = run(session(file), range(10, 20))
    assert rest.keys() == unbroken.keys()
    for id, value in unbroken.items():
        np.testing.assert_array_equal(rest[id], value)
