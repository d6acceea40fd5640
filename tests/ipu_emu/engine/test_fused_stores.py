"""Fused stores: products of inference store functions of their results, with the bits of separate ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.program.fused_stores import fused_stores
from ipu_emu.program.memory_plan import overlap_of
from tests.ipu_emu.helpers.sessions import device, options

_random = np.random.default_rng(0)


def number(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


class Network:
    """A builder with an input ``x``, and functions that add layers."""

    def __init__(self, *shape: int) -> None:
        self.builder = popart.Builder()
        self.data = number(*shape)
        self.x = self.builder.addInputTensor(popart.TensorInfo("FLOAT", shape))

    def conv(self, x: str, *weights: int, group: int = 1, stride: int = 1) -> str:
        pad = weights[2] // 2
        w, b = (self.builder.addInitializedInputTensor(number(*shape)) for shape in (weights, weights[:1]))
        return self.builder.aiOnnx.conv([x, w, b], group=group, strides=[stride] * 2, pads=[pad] * 4)

    def matmul(self, x: str, *weights: int) -> str:
        return self.builder.aiOnnx.matmul([x, self.builder.addInitializedInputTensor(number(*weights))])

    def with_bias(self, x: str, columns: int) -> str:
        return self.builder.aiOnnx.add([x, self.builder.addInitializedInputTensor(number(columns))])

    def session(self, *anchors: str, **values: Any) -> popart.InferenceSession:
        flow, opts = popart.DataFlow(1, list(anchors)), options(**values)
        session = popart.InferenceSession(self.builder.getModelProto(), flow, device(opts), userOptions=opts)
        session.prepareDevice()
        return session

    def run(self, session: popart.InferenceSession, y: str) -> np.ndarray:
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: self.data}, anchors))
        return anchors[y].copy()


def relu_network() -> tuple[Network, str, int]:
    net = Network(3, 5, 7, 9)
    ai = net.builder.aiOnnx
    return net, net.conv(ai.relu([net.conv(net.x, 13, 5, 3, 3)]), 4, 13, 1, 1), 1


def depthwise_network() -> tuple[Network, str, int]:
    net = Network(4, 6, 8, 8)
    clip = net.builder.aiOnnx.clip([net.conv(net.x, 6, 1, 3, 3, group=6, stride=2)], max=1.0, min=-0.5)
    return net, net.conv(clip, 4, 6, 1, 1), 1


def residual_network() -> tuple[Network, str, int]:
    """The sum is read again, so it lives on while the next convolution runs."""
    net = Network(4, 16, 6, 6)
    ai = net.builder.aiOnnx
    first = ai.relu([net.conv(net.x, 16, 16, 3, 3)])
    second = ai.relu([ai.add([net.conv(first, 16, 16, 3, 3), first])])
    return net, ai.add([net.conv(second, 16, 16, 1, 1), second]), 2


def perceptron() -> tuple[Network, str, int]:
    net = Network(21, 40)
    ai = net.builder.aiOnnx
    first = ai.tanh([net.with_bias(net.matmul(net.x, 40, 72), 72)])
    second = ai.add([net.with_bias(net.matmul(first, 72, 72), 72), first])
    return net, net.matmul(second, 72, 8), 2


def three_operands() -> tuple[Network, str, int]:
    """More operands than a product takes: the function is a separate pass over its results."""
    net = Network(4, 16, 6, 6)
    ai = net.builder.aiOnnx
    others = [ai.tanh([net.conv(net.x, 16, 16, 1, 1)]) for _ in range(3)]
    total = ai.add([net.conv(net.x, 16, 16, 3, 3), others[0]])
    for other in others[1:]:
        total = ai.mul([total, other])
    return net, net.conv(total, 4, 16, 1, 1), 1


def joined_branches() -> tuple[Network, str, int]:
    """Branches are concatenated, one of them is read again later, and a concatenated tensor is a part of another."""
    net = Network(4, 16, 6, 6)
    ai = net.builder.aiOnnx
    narrow, wide = (ai.relu([net.conv(net.x, 16, 16, size, size)]) for size in (1, 3))
    both = net.conv(ai.concat([wide, narrow], axis=1), 16, 32, 3, 3)
    third = ai.concat([both, ai.add([both, narrow])], axis=1)
    fourth = ai.concat([third, net.conv(third, 16, 32, 1, 1)], axis=1)
    return net, net.conv(fourth, 4, 48, 1, 1), 2


NETWORKS = [relu_network, depthwise_network, residual_network, perceptron, three_operands, joined_branches]


@pytest.mark.parametrize("network", NETWORKS)
def test_fused_results_have_the_bits_of_separate_ops(network: Callable[[], tuple[Network, str, int]]) -> None:
    """Floating-point checks look at the result of every op, so nothing is fused."""
    net, y, least = network()
    session = net.session(y)
    assert len(fused_stores(session.executable).functions) >= least
    fused = net.run(session, y)
    apart = net.session(y, enableFloatingPointChecks=True)
    np.testing.assert_array_equal(fused.view(np.int32), net.run(apart, y).view(np.int32))


@pytest.mark.parametrize("network", NETWORKS)
def test_fused_tensors_take_the_memory_of_the_plan(network: Callable[[], tuple[Network, str, int]]) -> None:
    net, y, _ = network()
    session = net.session(y)
    plan = fused_stores(session.executable).plan
    assert plan.sizes == session.executable.plan.sizes
    assert overlap_of(plan.lives) is None
    ends = {id: place.offset_of(0) + place.tensor.nbytes for id, place in plan.placements.items()}
    assert all(end <= plan.sizes[plan.placements[id].region] for id, end in ends.items())


def test_branches_are_computed_where_they_are_joined() -> None:
    net, y, _ = joined_branches()
    assert len(fused_stores(net.session(y).executable).joined) == 2


def test_concatenation_of_a_tensor_with_itself_copies_it() -> None:
    net = Network(4, 16, 6, 6)
    part = net.builder.aiOnnx.relu([net.conv(net.x, 16, 16, 1, 1)])
    y = net.conv(net.builder.aiOnnx.concat([part, part], axis=1), 4, 32, 1, 1)
    session = net.session(y)
    assert not fused_stores(session.executable).joined
    with_itself = net.run(session, y)
    assert np.isfinite(with_itself).all()


def test_a_result_that_others_read_is_stored() -> None:
    net = Network(3, 5, 7, 9)
    y = net.conv(net.x, 13, 5, 3, 3)
    both = net.builder.aiOnnx.mul([net.builder.aiOnnx.relu([y]), net.conv(y, 13, 13, 1, 1)])
    session = net.session(net.conv(both, 4, 13, 1, 1))
    assert y not in fused_stores(session.executable).functions


def test_anchors_are_stored() -> None:
    net = Network(3, 5, 7, 9)
    y = net.conv(net.x, 13, 5, 3, 3)
    z: Any = net.conv(net.builder.aiOnnx.relu([y]), 4, 13, 1, 1)
    assert not fused_stores(net.session(y, z).executable).functions
