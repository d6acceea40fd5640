"""Pooling, resizing and normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule, batched, in_float, listed


def _windows(call: Call, spatial: int) -> dict[str, Any]:
    kernel = listed(call["kernel_size"], spatial)
    strides = listed(call.get("stride", []) or kernel, spatial)
    pads = listed(call.get("padding", 0), spatial)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads]}
    if call.get("ceil_mode", False):
        attributes["ceil_mode"] = 1
    return attributes


def _max_pool(spatial: int) -> Rule:
    def rule(call: Call) -> Any:
        attributes = _windows(call, spatial)
        dilations = listed(call.get("dilation", 1), spatial)
        if set(dilations) != {1}:
            attributes["dilations"] = dilations
        y = batched(call.x, spatial).op("MaxPool", **attributes).shaped(call.shape)
        return y if len(call.outputs) == 1 else [y, None]

    return rule


def _avg_pool(spatial: int) -> Rule:
    def rule(call: Call) -> Value:
        if call.get("divisor_override"):
            raise call.refuse("divisor_override is not supported; multiply the result instead")
        attributes = _windows(call, spatial) | {"count_include_pad": int(call.get("count_include_pad", True))}
        return batched(call.x, spatial).op("AveragePool", **attributes).shaped(call.shape)

    return rule


def _adaptive(spatial: int, type: str) -> Rule:
    def rule(call: Call) -> Any:
        x = batched(call.x, spatial)
        sizes, wanted = x.tensor.shape[2:], listed(call["output_size"], spatial)
        for axis, (size, out) in enumerate(zip(sizes, wanted, strict=True)):
            if size % out:
                raise call.refuse(
                    f"Input dim {axis} ({size}) is not divisible by the corresponding output dim ({out}). "
                    "Adaptive pooling needs windows of one size"
                )
        kernel = [size // out for size, out in zip(sizes, wanted, strict=True)]
        y = x.op(type, kernel_shape=kernel, strides=kernel, pads=[0] * 2 * spatial).shaped(call.shape)
        return y if len(call.outputs) == 1 else [y, None]

    return rule


def _upsample(mode: str, spatial: int) -> Rule:
    def rule(call: Call) -> Value:
        resized, aligned = call.x, bool(call.get("align_corners", False))
        if not resized.tensor.dtype.is_float and not mode.startswith("nearest"):
            raise call.refuse("it averages integers; convert them to floating point, and round the result")
        for axis, (out, scale) in enumerate(zip(call.shape[2:], _factors(call, spatial), strict=True)):
            size = call.x.tensor.shape[2 + axis]
            ratio = 1 / scale if scale else size / out
            resized = _resized(call, resized, 2 + axis, size, out, np.float32(ratio), mode, aligned)
        return resized

    return rule


def _factors(call: Call, spatial: int) -> list[float | None]:
    """The scale of each axis, if it was given: the sizes may be rounded."""
    names = ("scales",) if spatial == 1 else ("scales_d", "scales_h", "scales_w")[3 - spatial :]
    listed = call.get("scale_factors")
    return list(listed) if listed else [call.get(name) for name in names]


def _resized(
    call: Call, x: Value, axis: int, size: int, out: int, ratio: np.float32, mode: str, aligned: bool
) -> Value:
    """Resize one axis: gather the nearest elements, or multiply by the weights of neighbours.

    ``ratio`` (input / output) is FLOAT, as in PyTorch, because its rounding decides which element is nearest.
    """
    places = np.arange(out, dtype=np.float32)
    if mode.startswith("nearest"):
        centred = places + np.float32(0.5) if mode == "nearest-exact" else places
        chosen = np.minimum((centred * ratio).astype(np.int32), size - 1)
        return x.op("Gather", call.constant(chosen), axis=axis)
    if aligned:
        source = np.arange(out) * ((size - 1) / max(out - 1, 1))
    else:
        source = (np.arange(out) + 0.5) * float(ratio) - 0.5
        source = np.maximum(source, 0) if mode == "linear" else source
    low = np.floor(source).astype(int)
    part = source - low
    weights = np.zeros((size, out), np.float64)
    if mode == "linear":
        taps = [(low, 1 - part), (low + 1, part)]
    else:
        taps = [(low + k - 1, _cubic(np.abs(part - (k - 1)))) for k in range(4)]
    for index, weight in taps:
        np.add.at(weights, (np.clip(index, 0, size - 1), np.arange(out)), weight)
    rank = x.tensor.rank
    perm = [*(number for number in range(rank) if number != axis), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    turned = x.op("Transpose", perm=perm)
    resized = turned.op("MatMul", call.constant(weights.astype(x.tensor.dtype.numpy)))
    return resized.op("Transpose", perm=back)


def _cubic(distance: Any, a: float = -0.75) -> Any:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


# Normalisation


def _ones(call: Call, count: int, like: Value, number: float) -> Value:
    return call.constant(np.full((count,), number, like.tensor.dtype.numpy))


def _affine(call: Call, count: int, x: Value) -> list[Value]:
    """Scale and bias, ``count`` numbers of the type of ``x`` each; 1 and 0 without them."""
    affine = [(call.optional("weight"), 1), (call.optional("bias"), 0)]
    return [
        _ones(call, count, x, number) if parameter is None else parameter.cast(x.tensor.dtype).shaped((count,))
        for parameter, number in affine
    ]


def _batch_norm(call: Call) -> list[Any]:
    x = call.value("input")
    channels = x.tensor.shape[1]
    scale, bias = _affine(call, channels, x)
    epsilon, momentum = float(call["eps"]), call.get("momentum", 0.1)
    mean, variance = call.get("running_mean"), call.get("running_var")
    training = bool(call.get("training", call.get("train", False)))
    if not training:
        if mean is None or variance is None:
            raise call.refuse("it has no running statistics to normalise by")
        statistics = [call.of(statistic).cast(x.tensor.dtype) for statistic in (mean, variance)]
        y = call.writer.emit("BatchNormalization", [x, scale, bias, *statistics], {"epsilon": epsilon})[0]
        return [y, None, None]
    y, batch_mean, batch_variance, _ = x.ops(4, "BatchNormTrain", scale, bias, epsilon=epsilon)
    if mean is not None and variance is not None:
        count = x.tensor.nelms // max(channels, 1)
        unbiased = count / max(count - 1, 1)
        for tensor, new, factor in ((mean, batch_mean, 1.0), (variance, batch_variance, unbiased)):
            before = call.of(tensor)
            batch = new.op("Detach").cast(before.tensor.dtype)
            call.write(tensor, _averaged(before, batch.scaled(factor), call, momentum))
    return [y, None, None]


def _averaged(before: Value, new: Value, call: Call, momentum: Any) -> Value:
    """A running average; the momentum is a number, or a tensor that changes on the device."""
    if isinstance(momentum, torch.Tensor):
        share = call.of(momentum).cast(before.tensor.dtype)
        return before * (1.0 - share) + new * share
    return before.scaled(1 - float(momentum)) + new.scaled(float(momentum))


def _layer_norm(call: Call) -> list[Any]:
    x, shape = call.value("input"), [int(size) for size in call["normalized_shape"]]
    axis, count = x.tensor.rank - len(shape), prod(shape)
    rows = x.shaped((prod(x.tensor.shape[:axis]), count))
    return [_grouped_norm(call, rows, count, 1).shaped(x.tensor.shape), None, None]


def _group_norm(call: Call) -> list[Any]:
    x = call.value("input")
    groups = int(call.get("group", call.get("num_groups", 1)))
    return [_grouped_norm(call, x, x.tensor.shape[1], groups), None, None]


def _grouped_norm(call: Call, x: Value, channels: int, groups: int) -> Value:
    inputs = [x, *_affine(call, channels, x)]
    attributes = {"num_groups": groups, "epsilon": float(call["eps"])}
    return call.writer.emit_in("ai.graphcore", "GroupNormalization", inputs, attributes, 3)[0]


def _rms_norm(call: Call) -> list[Any]:
    x, shape = call.value("input"), [int(size) for size in call["normalized_shape"]]
    axes = list(range(x.tensor.rank - len(shape), x.tensor.rank))
    epsilon = call.get("eps")
    epsilon = float(torch.finfo(call["input"].dtype).eps) if epsilon is None else float(epsilon)
    mean = (x * x).op("ReduceMean", axes=axes, keepdims=1)
    y = x * (mean + epsilon).op("Sqrt").op("Reciprocal")
    weight = call.optional("weight")
    return [y if weight is None else y * weight.cast(y.tensor.dtype), None]


def _weight_norm(call: Call) -> list[Any]:
    v, g, axis = call.value("v"), call.value("g"), int(call.get("dim", 0))
    axes = [number for number in range(v.tensor.rank) if axis == -1 or number != axis]
    norm = v.op("ReduceSumSquare", axes=axes, keepdims=1).op("Sqrt")
    return [v * (g / norm), norm]


RULES: dict[str, Rule] = {
    "_adaptive_avg_pool2d": _adaptive(2, "AveragePool"),
    "_adaptive_avg_pool3d": _adaptive(3, "AveragePool"),
    "_fused_rms_norm": in_float(_rms_norm),
    **{f"_upsample_nearest_exact{n}d": _upsample("nearest-exact", n) for n in (1, 2, 3)},
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_weight_norm_interface": in_float(_weight_norm),
    **{f"adaptive_avg_pool{n}d": _adaptive(n, "AveragePool") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive(n, "MaxPool") for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    "native_batch_norm": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": in_float(_rms_norm),
    "upsample_bicubic2d": _upsample("cubic", 2),
    "upsample_bilinear2d": _upsample("linear", 2),
    "upsample_linear1d": _upsample("linear", 1),
    **{f"upsample_nearest{n}d": _upsample("nearest", n) for n in (1, 2, 3)},
    "upsample_trilinear3d": _upsample("linear", 3),
}
