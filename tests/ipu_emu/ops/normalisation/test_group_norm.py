"""Group normalisation: which channels form a group."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import options, train


def normalised(x: np.ndarray, group_of: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(values, means [N, G]) for the group of each channel."""
    y, means = np.empty_like(x), np.empty((len(x), max(group_of) + 1), np.float32)
    for n in range(len(x)):
        for group in range(max(group_of) + 1):
            channels = [c for c, other in enumerate(group_of) if other == group]
            part = x[n, channels]
            means[n, group] = part.mean()
            y[n, channels] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
    return y, means


@pytest.mark.parametrize("strided", [False, True])
def test_channels_form_groups_as_the_option_says(strided: bool) -> None:
    rng = np.random.default_rng(1)
    x, scale, bias = (rng.normal(size=size).astype(np.float32) for size in ((2, 6, 4), 6, 6))
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(value) for value in (x, scale, bias)]
    y, mean, _ = builder.aiGraphcore.groupnormalization(ids, 3)
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    gradients = [popart.reservedGradientPrefix() + id for id in ids[1:]]
    flow = popart.DataFlow(1, [y, mean, *gradients])
    opts = options(groupNormStridedChannelGrouping=strided)
    session = train(builder, flow, loss, popart.ConstSGD(0.1), opts)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    expected, means = normalised(x, [c % 3 if strided else c // 2 for c in range(6)])
    value = expected * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(anchors[y], value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(anchors[mean].reshape(2, 3), means, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(anchors[gradients[0]], (np.sign(value) * expected).sum((0, 2)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(anchors[gradients[1]], np.sign(value).sum((0, 2)), rtol=1e-5)
