"""Updates: the weight after every step of an optimiser whose gradients are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options, train

__all__ = ["FIRST", "gradients", "weights_of"]

FIRST = np.array([1.0, -2.0, 0.5], np.float32)


def gradients(steps: int, factor: int = 1) -> np.ndarray:
    """The gradients of the loss sum(w * x) for these inputs: x itself, [steps, A, 3]."""
    return np.random.default_rng(5).standard_normal((steps, factor, 3)).astype(np.float32)


def weights_of(optimizers: Sequence[Any], factor: int = 1, specific: Any = None) -> np.ndarray:
    """The weight after every step, [steps, 3]; optimizers[i] is used in step i."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(FIRST)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    for optimizer in {id(o): o for o in optimizers}.values() if specific else []:
        optimizer.insertSpecific(w, specific)
    session = train(builder, popart.DataFlow(1, [loss]), loss, optimizers[0], options(A=factor))
    anchors, after = session.initAnchorArrays(), []
    for data, optimizer in zip(gradients(len(optimizers), factor), optimizers, strict=True):
        session.updateOptimizerFromHost(optimizer)
        session.run(popart.PyStepIO({x: data}, anchors))
        value = np.zeros(3, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({w: value}))
        after.append(value)
    return np.array(after)
