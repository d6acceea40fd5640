"""Logarithms of softmax: values and gradients compared with float64; losses that transpose nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.ops import TABLE, BoundOp, append
from ipu_emu.ops.core import Rewrite, input_node
from ipu_emu.program.memory_plan import node_in


def graph_of(**values: Any) -> Graph:
    graph = Graph()
    for id, value in values.items():
        graph.add(Tensor(id, dtype_of(value), value.shape, Role.CONSTANT), value)
    return graph


def computed(type: str, *values: np.ndarray) -> np.ndarray:
    """The result of the kernel."""
    graph = graph_of(**{f"x{index}": value for index, value in enumerate(values)})
    op = Op(type, tuple(f"x{index}" for index in range(len(values))), ("y",), {"axis": 1}, "", 10)
    append(graph, op)
    node, y = node_in(graph, op), np.full_like(values[0], 7)
    scratch = tuple(np.full(size * y.itemsize // 4, np.nan, np.float32) for size in TABLE[op].workspace(node))
    kernel: Any = TABLE[op].kernel
    kernel(BoundOp(node, values, (y,), tuple(array.view(y.dtype) for array in scratch)))()
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 17), (4, 1000)])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_values_and_gradients_are_those_of_the_formula(dtype: Any, shape: tuple[int, int], scale: float) -> None:
    random = np.random.default_rng(shape[1])
    x, g = ((random.standard_normal(shape) * s).astype(dtype) for s in (scale, 1.0))
    shifted = x.astype(np.float64) - x.max(1, keepdims=True)
    exact = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    y = computed("LogSoftmax", x)
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=2e-6)
    slopes = g - np.exp(exact) * g.astype(np.float64).sum(1, keepdims=True)
    np.testing.assert_allclose(computed("LogSoftmaxGrad", g, y), slopes, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("shape", "transposes"), [((4, 5), 0), ((4, 5, 3), 2)])
def test_a_loss_of_classes_in_the_last_axis_transposes_nothing(shape: tuple[int, ...], transposes: int) -> None:
    graph = graph_of(x=np.zeros(shape, np.float32), t=np.zeros((shape[0], *shape[2:]), np.int32))
    op = Op("SoftmaxCrossEntropyLoss", ("x", "t"), ("loss", "logs"), {}, "", 13)
    rewrite, expand = Rewrite(graph, op), TABLE[op].expand
    assert expand is not None
    expand(rewrite, input_node(graph, op))
    assert [new_op.type for new_op in rewrite.ops].count("Transpose") == transposes
