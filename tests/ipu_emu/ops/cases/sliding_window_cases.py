"""Cases of convolutions and poolings over one and three axes, of transposed convolutions, and of other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, case, onnx_op

__all__ = ["WINDOWS"]


def conv(rank: int, name: str, x: Any, w: Any, *, bias: bool = False, pad: int = 0, **attributes: Any) -> Case:
    def torch_conv(torch: Any, x: Any, w: Any, b: Any = None) -> Any:
        rest = {"stride": attributes.get("strides", 1), "dilation": attributes.get("dilations", 1)}
        function = getattr(torch.nn.functional, f"conv{rank}d")
        return function(x, w, b, padding=pad, groups=attributes.get("group", 1), **rest)

    shapes = [x, w, (w[0],)] if bias else [x, w]
    build = onnx_op("conv", pads=[pad] * 2 * rank, **attributes)
    return case("Conv", f"{rank}-D {name}", shapes, build, torch_conv)


def transposed(
    name: str, x: Any, w: Any, *, bias: bool = False, pad: int = 0, extra: int = 0, **attributes: Any
) -> Case:
    rank = len(x) - 2

    def torch_conv(torch: Any, x: Any, w: Any, b: Any = None) -> Any:
        rest = {"stride": attributes.get("strides", 1), "dilation": attributes.get("dilations", 1)}
        function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
        return function(x, w, b, padding=pad, output_padding=extra, groups=attributes.get("group", 1), **rest)

    shapes = [x, w, (w[1] * attributes.get("group", 1),)] if bias else [x, w]
    build = onnx_op("convtranspose", pads=[pad] * 2 * rank, output_padding=[extra] * rank, **attributes)
    onnx = attributes.get("group", 1) == 1  # the reference evaluator mixes up the channels of groups
    return case("ConvTranspose", name, shapes, build, torch_conv, compound=bias, onnx=onnx)


def pool(op: str, rank: int, x: Any, kernel: list[int], pad: int, strides: list[int], **attributes: int) -> Case:
    average = op == "AveragePool"
    values = () if average else (1,)
    more = {"pads": [pad] * 2 * rank, "strides": strides, **attributes}
    build = onnx_op(op.lower(), *values, kernel, **more)

    def torch_pool(torch: Any, x: Any) -> Any:
        function = getattr(torch.nn.functional, f"{'avg' if average else 'max'}_pool{rank}d")
        counts = {"count_include_pad": bool(attributes.get("count_include_pad", 0))} if average else {}
        return function(x, kernel, strides, pad, ceil_mode=bool(attributes.get("ceil_mode", 0)), **counts)

    return case(op, f"{rank}-D {attributes}", [x], build, torch_pool, distinct=not average, compound=rank == 3)


def resized(mode: str, sizes: list[int], **attributes: Any) -> Case:
    """An image of 4 x 5 in another size, by opset 11."""

    def build(builder: Any, ids: list[str]) -> str:
        opset, scales = builder.aiOnnxOpset11, np.array(sizes) / (4, 5)
        none = opset.constant(np.zeros(0, np.float32))
        factors = opset.constant(np.array([1, 1, *scales], np.float32))
        return str(opset.resize([ids[0], none, factors], mode=mode, **attributes))

    corners = attributes.get("coordinate_transformation_mode") == "align_corners"
    names = {"nearest": "nearest", "cubic": "bicubic"}
    rest = {} if mode == "nearest" else {"align_corners": corners}
    return case(
        "Resize",
        f"{mode} {sizes} {attributes}",
        [(2, 3, 4, 5)],
        build,
        lambda torch, x: torch.nn.functional.interpolate(x, sizes, mode=names[mode], **rest),
        compound=mode != "nearest",
    )


def upsampled(torch: Any, x: Any) -> Any:
    return torch.nn.functional.interpolate(x, scale_factor=(2, 3), mode="nearest")


def upsample(builder: Any, ids: list[str]) -> str:
    opset = builder.aiOnnxOpset9
    return str(opset.upsample([ids[0], opset.constant(np.array([1, 1, 2, 3], np.float32))], "nearest"))


WINDOWS = [
    resized("nearest", [8, 10], coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    resized("cubic", [8, 10]),
    case("Upsample", "", [(2, 3, 4, 5)], upsample, upsampled),
    conv(1, "plain", (2, 3, 7), (4, 3, 3)),
    conv(1, "groups", (2, 4, 8), (6, 2, 3), bias=True, pad=1, group=2, strides=[2], dilations=[2]),
    conv(2, "depthwise", (4, 9, 8, 8), (9, 1, 7, 7), bias=True, pad=3, group=9),
    conv(2, "depthwise, strides", (8, 5, 9, 9), (10, 1, 3, 3), pad=1, group=5, strides=[2, 2]),
    conv(2, "wide groups", (3, 18, 6, 6), (22, 9, 3, 3), bias=True, pad=1, group=2, dilations=[1, 2]),
    conv(2, "short rows", (1, 5, 7, 7), (6, 5, 3, 3), bias=True, pad=1),
    conv(2, "short rows, strides", (2, 5, 9, 7), (6, 5, 3, 3), pad=1, strides=[2, 2]),
    conv(3, "plain", (2, 2, 4, 4, 5), (3, 2, 3, 2, 3)),
    conv(
        3,
        "groups",
        (1, 4, 5, 4, 4),
        (2, 2, 3, 2, 2),
        bias=True,
        pad=1,
        group=2,
        strides=[2, 1, 2],
        dilations=[1, 2, 1],
    ),
    transposed("plain", (2, 3, 4, 4), (3, 2, 3, 3)),
    transposed("strides", (2, 2, 3, 4), (2, 3, 3, 3), bias=True, pad=1, extra=1, strides=[2, 2]),
    transposed("groups", (1, 4, 3, 3), (4, 2, 2, 3), group=2, dilations=[2, 1]),
    transposed("3-D", (2, 2, 3, 2, 3), (2, 3, 2, 3, 2)),
    transposed(
        "3-D groups",
        (1, 4, 2, 3, 3),
        (4, 1, 3, 2, 2),
        bias=True,
        pad=1,
        extra=1,
        group=2,
        strides=[2, 2, 2],
        dilations=[1, 2, 1],
    ),
    transposed("1-D", (2, 3, 5), (3, 2, 3), bias=True, strides=[2], pad=1),
    pool("MaxPool", 1, (2, 3, 8), [3], 1, [2]),
    pool("MaxPool", 3, (1, 2, 4, 5, 4), [2, 3, 2], 1, [2, 1, 2]),
    pool("AveragePool", 1, (2, 3, 8), [3], 1, [2]),
    pool("AveragePool", 3, (1, 2, 5, 4, 4), [3, 2, 2], 1, [2, 1, 2]),
    pool("AveragePool", 3, (1, 2, 5, 4, 4), [3, 2, 2], 1, [2, 2, 2], ceil_mode=1, count_include_pad=1),
    case("GlobalAveragePool", "", [(2, 3, 4, 5)], onnx_op("globalaveragepool"), lambda t, x: x.mean((2, 3), True)),
    case(
        "GlobalMaxPool",
        "",
        [(2, 3, 4, 5)],
        onnx_op("globalmaxpool"),
        lambda t, x: x.amax((2, 3), True),
        distinct=True,
    ),
]
