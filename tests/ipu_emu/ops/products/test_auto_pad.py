"""auto_pad of ONNX models: windows with this padding, compared with PyTorch on padded tensors.

total t:  SAME_UPPER  t // 2 before, the rest after        SAME_LOWER  the larger part before
transposed convolutions of a given output shape crop:      SAME_UPPER  the larger part at the beginning
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch.nn import functional

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer
from tests.ipu_emu.ops.cases.edge_tables import some

SIZES = (5, 6)


def result(type: str, arrays: list[np.ndarray], **attributes: Any) -> np.ndarray:
    """The result of a model of one node."""
    names = [f"i{index}" for index in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    node, y = helper.make_node(type, names, ["y"], **attributes), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "windows", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=4)
    builder = popart.Builder(model.SerializeToString())
    output: np.ndarray = infer(builder, popart.DataFlow(1, ["y"]), dict(zip(names, arrays, strict=True)))["y"]
    return output


def padded(kind: str, kernel: int, stride: int, value: float) -> Any:
    """The padding with which all windows fit, as a function of a tensor."""
    sides: list[int] = []
    for size in reversed(SIZES):
        total = 0 if kind == "VALID" else max((-(-size // stride) - 1) * stride + kernel - size, 0)
        before = total // 2 if kind == "SAME_UPPER" else total - total // 2
        sides += [before, total - before]
    return lambda x: functional.pad(x, sides, value=value)


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 1), (3, 1), (2, 3), (3, 2)])
def test_windows(kind: str, kernel: int, stride: int) -> None:
    x, w = some((1, 2, *SIZES)), some((3, 2, kernel, kernel), seed=2)
    image, zeros = torch.tensor(x), padded(kind, kernel, stride, 0.0)
    lowest = padded(kind, kernel, stride, -np.inf)
    inside = functional.avg_pool2d(zeros(torch.ones_like(image)), kernel, stride)
    attributes = {"auto_pad": kind, "kernel_shape": [kernel, kernel], "strides": [stride, stride]}
    for type, arrays, wanted in (
        ("Conv", [x, w], functional.conv2d(zeros(image), torch.tensor(w), stride=stride)),
        ("MaxPool", [x], functional.max_pool2d(lowest(image), kernel, stride)),
        ("AveragePool", [x], functional.avg_pool2d(zeros(image), kernel, stride) / inside),
    ):
        np.testing.assert_allclose(result(type, arrays, **attributes), wanted.numpy(), rtol=1e-5, err_msg=type)


@pytest.mark.parametrize(("kind", "first"), [("NOTSET", 0), ("SAME_LOWER", 0), ("SAME_UPPER", 1)])
@pytest.mark.parametrize("stride", [2, 3])
def test_transposed_convolutions(kind: str, first: int, stride: int) -> None:
    x, w = some((1, 1, 3, 3)), some((1, 1, 3, 3), seed=2)
    full = functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), stride=stride).numpy()
    size = full.shape[2] - 1
    output = result("ConvTranspose", [x, w], auto_pad=kind, strides=[stride, stride], output_shape=[size, size])
    rows = slice(first, first + size)
    np.testing.assert_allclose(output, full[:, :, rows, rows], rtol=1e-5)
