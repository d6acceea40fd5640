"""Cases of ops that few networks use: norms of windows, unpooling, determinants, regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ipu_emu.ops.cases.case import Case, case, custom_op, onnx_op

__all__ = ["RARE"]

REGIONS = np.array([[1.0, 1.0, 6.0, 5.0], [2.0, 1.5, 9.0, 7.0]], np.float32)
IMAGES = np.array([0, 1], np.int64)


def lp_pool(p: int, kernel: list[int], strides: list[int]) -> Case:
    build = onnx_op("lppool", kernel, p, strides=strides)

    def torch_pool(torch: Any, x: Any) -> Any:
        return torch.nn.functional.lp_pool2d(x.abs(), p, kernel, strides)

    return case("LpPool", f"{p}", [(2, 3, 5, 4)], build, torch_pool, positive=True, onnx=False, compound=True)


def global_lp_pool(torch: Any, x: Any) -> Any:
    return x.abs().pow(3).sum((2, 3), keepdim=True) ** (1 / 3)


def unpool(builder: Any, ids: list[str]) -> str:
    """Places as ONNX counts them: over all channels."""
    places = builder.aiOnnxOpset9.constant(np.array([[[[0, 5], [9, 15]], [[16, 22], [25, 26]]]], np.int64))
    return str(builder.aiOnnxOpset9.maxunpool([*ids, places], [2, 2], strides=[2, 2]))


def torch_unpool(torch: Any, x: Any) -> Any:
    places = torch.tensor([[[[0, 5], [9, 15]], [[0, 6], [9, 10]]]])
    return torch.nn.functional.max_unpool2d(x, places, 2, 2)


def roi_align(mode: str) -> Case:
    def build(builder: Any, ids: list[str]) -> str:
        regions = builder.aiOnnx.constant(REGIONS)
        if builder.getTensorDtypeString(ids[0]) == "float16":
            regions = builder.aiOnnx.cast([regions], "FLOAT16")
        return str(builder.aiOnnx.roialign([ids[0], regions, builder.aiOnnx.constant(IMAGES)], mode, 2, 3, 2, 0.5))

    def torch_align(torch: Any, x: Any) -> Any:
        """Samples by grid_sample, which interpolates as RoiAlign does inside of the image."""
        height, width = x.shape[2:]
        left, top, right, bottom = (torch.tensor(REGIONS).T * 0.5)[:, :, None]
        v = top + (bottom - top).clamp(min=1) * (torch.arange(4) + 0.5) / 4
        u = left + (right - left).clamp(min=1) * (torch.arange(6) + 0.5) / 6
        scaled = [2 * u / (width - 1) - 1, 2 * v / (height - 1) - 1]
        grid = torch.stack(torch.broadcast_tensors(scaled[0][:, None, :], scaled[1][:, :, None]), -1)
        taken = torch.nn.functional.grid_sample(x[torch.tensor(IMAGES)], grid, align_corners=True)
        return torch.nn.functional.avg_pool2d(taken, 2)

    return case("RoiAlign", mode, [(2, 3, 6, 7)], build, torch_align, onnx=False, compound=True)


def max_roi_pool(builder: Any, ids: list[str]) -> str:
    rows = np.concatenate([IMAGES[:, None], REGIONS], 1).astype(np.float32)
    regions = builder.aiOnnx.constant(rows)
    if builder.getTensorDtypeString(ids[0]) == "float16":
        regions = builder.aiOnnx.cast([regions], "FLOAT16")
    return str(builder.aiOnnx.maxroipool([ids[0], regions], [2, 3], 0.5))


def torch_max_roi_pool(torch: Any, x: Any) -> Any:
    rows = []
    for image, region in zip(IMAGES, REGIONS, strict=True):
        left, top, right, bottom = np.floor(region * 0.5 + 0.5).astype(int)
        height, width = max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3
        bins = [
            x[image, :, top + int(i * height) : top + int(np.ceil((i + 1) * height)),
              left + int(j * width) : left + int(np.ceil((j + 1) * width))].amax((1, 2))
            for i in range(2)
            for j in range(3)
        ]  # fmt: skip
        rows.append(torch.stack(bins, -1).reshape(x.shape[1], 2, 3))
    return torch.stack(rows)


def affine_grid(name: str, theta: tuple[int, ...], size: list[int], align_corners: int) -> Case:
    def build(builder: Any, ids: list[str]) -> str:
        sizes = builder.aiOnnx.constant(np.array(size))
        return custom_op("AffineGrid", 20, align_corners=align_corners)(builder, [*ids, sizes])

    def torch_grid(torch: Any, x: Any) -> Any:
        return torch.nn.functional.affine_grid(x, size, align_corners=bool(align_corners))

    return case("AffineGrid", name, [theta], build, torch_grid, onnx=False, compound=True)


RARE = [
    affine_grid("middles", (2, 2, 3), [2, 1, 5, 4], 0),
    affine_grid("corners", (2, 2, 3), [2, 3, 2, 4], 1),
    affine_grid("of volumes", (2, 3, 4), [2, 1, 3, 5, 4], 0),
    lp_pool(2, [2, 2], [1, 2]),
    lp_pool(1, [3, 2], [2, 1]),
    lp_pool(3, [2, 3], [1, 1]),
    case(
        "GlobalLpPool",
        "",
        [(2, 3, 3, 2)],
        onnx_op("globallppool", 3),
        global_lp_pool,
        positive=True,
        onnx=False,
        compound=True,
    ),
    case("MaxUnpool", "", [(1, 2, 2, 2)], unpool, torch_unpool, onnx=False),
    case("Det", "", [(2, 3, 3)], onnx_op("det", opset=11), lambda t, x: t.linalg.det(x), onnx=False),
    roi_align("avg"),
    case("MaxRoiPool", "", [(2, 3, 6, 7)], max_roi_pool, torch_max_roi_pool, distinct=True, onnx=False),
]
