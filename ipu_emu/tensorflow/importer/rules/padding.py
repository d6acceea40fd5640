"""Rules of ops that repeat, pad or reverse, and of blocks of pixels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.slicing import sliced
from ipu_emu.tensorflow.importer.values import Held


def _tile(node: SourceNode) -> Any:
    repeats, shape = node.integers(1), node.shape(0)
    if all(count == 1 for count in repeats):
        return node.inputs[0]
    spread = tuple(count * size for count, size in zip(repeats, shape, strict=True))
    if (result := _spread_pixel(node, spread)) is not None:
        return result
    return node.x.op("Tile", node.constant(repeats, np.int32))


def _broadcast(node: SourceNode) -> Held | Value:
    shape = tuple(node.integers(1))
    return _spread_pixel(node, shape) or node.x.spread_to(shape)


def _spread_pixel(node: SourceNode, shape: tuple[int, ...]) -> Held | None:
    """Images of one pixel [N, 1, 1, C] as ``shape``, which has as many images and channels: a mean's gradient."""
    own, held = node.shape(0), node.inputs[0]
    if not isinstance(held, Held) or len(own) != 4 or len(shape) != 4:
        return None
    if own != (shape[0], 1, 1, shape[3]) or shape[1] == 1 or shape[2] == 1:
        return None
    return Held(node.first(0).spread_to((shape[0], shape[3], *shape[1:3])), channels_first=True)


def _pads(node: SourceNode) -> list[int]:
    pairs = node.known(1)
    return [int(pad) for pad in (*pairs[:, 0], *pairs[:, 1])]


def _pad(node: SourceNode) -> Any:
    value = float(node.known(2)) if len(node.inputs) > 2 else 0.0
    pads, held = _pads(node), node.held(0)
    if held.channels_first:
        order = (0, 3, 1, 2)
        pads = [pads[axis] for axis in order] + [pads[4 + axis] for axis in order]
    return Held(held.value.op("Pad", pads=pads, mode="constant", value=value), held.channels_first)


def _mirror_pad(node: SourceNode) -> Value:
    """Mirror the elements at the ends of axes, or for the gradient add those of the mirrored parts."""
    value, adds = node.x, node.op.type == "MirrorPadGrad"
    mode = "reflect" if node.attr("mode") == b"REFLECT" else "symmetric"
    for axis, pads in enumerate(node.known(1).tolist()):
        if any(pads):
            shape = list(value.tensor.shape)
            shape[axis] -= sum(pads) if adds else 0
            places = node.constant(np.pad(np.arange(shape[axis]), pads, mode), np.int32)  # type: ignore[call-overload]
            attributes: dict[str, Any] = {"axis": axis, "shape": shape} if adds else {"axis": axis}
            value = value.op("GatherGrad" if adds else "Gather", places, **attributes)
    return value


def _reverse(node: SourceNode) -> Value:
    rank = len(node.shape(0))
    axes = sorted({axis % rank for axis in node.integers(1)})
    return node.x.op("Reverse", dimensions=axes) if axes else node.x


def _roll(node: SourceNode) -> Value:
    value = node.x
    for shift, axis in zip(node.integers(1), node.integers(2), strict=True):
        size = value.tensor.shape[axis]
        places = (np.arange(size) - shift) % max(size, 1)
        value = value.op("Gather", node.constant(places, np.int32), axis=axis % value.tensor.rank)
    return value


# Blocks of pixels


def _space_to_depth(node: SourceNode) -> Held:
    size = int(node.attr("block_size"))
    n, h, w, c = node.shape(0)
    x = node.x.shaped((n, h // size, size, w // size, size, c))
    return Held(x.op("Transpose", perm=[0, 1, 3, 2, 4, 5]).shaped((n, h // size, w // size, size * size * c)))


def _depth_to_space(node: SourceNode) -> Held:
    size = int(node.attr("block_size"))
    n, h, w, c = node.shape(0)
    depth = c // (size * size)
    x = node.x.shaped((n, h, w, size, size, depth))
    return Held(x.op("Transpose", perm=[0, 1, 3, 2, 4, 5]).shaped((n, h * size, w * size, depth)))


def _space_to_batch(node: SourceNode) -> Value:
    blocks, pairs, value = node.integers(1), node.known(2), node.x
    rest = value.tensor.shape[len(blocks) + 1 :]
    begins = [0, *(int(pad) for pad in pairs[:, 0]), *[0] * len(rest)]
    ends = [0, *(int(pad) for pad in pairs[:, 1]), *[0] * len(rest)]
    if any((*begins, *ends)):
        value = value.op("Pad", pads=[*begins, *ends], mode="constant", value=0.0)
    shape, count = value.tensor.shape, len(blocks)
    split = [n for i, block in enumerate(blocks) for n in (shape[i + 1] // block, block)]
    value = value.shaped((shape[0], *split, *rest))
    perm = [*(2 * i + 2 for i in range(count)), 0, *(2 * i + 1 for i in range(count))]
    value = value.op("Transpose", perm=[*perm, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    return value.shaped((shape[0] * prod(blocks), *(shape[i + 1] // b for i, b in enumerate(blocks)), *rest))


def _batch_to_space(node: SourceNode) -> Value:
    blocks, crops, value = node.integers(1), node.known(2), node.x
    shape, count = value.tensor.shape, len(blocks)
    rest, batch = shape[count + 1 :], shape[0] // prod(blocks)
    value = value.shaped((*blocks, batch, *shape[1:]))
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    value = value.op("Transpose", perm=[count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    value = value.shaped((batch, *(shape[i + 1] * b for i, b in enumerate(blocks)), *rest))
    begins = [0, *(int(crop) for crop in crops[:, 0]), *[0] * len(rest)]
    ends = [
        batch,
        *(value.tensor.shape[i + 1] - int(crop) for i, crop in enumerate(crops[:, 1])),
        *rest,
    ]
    return sliced(value, begins, ends)


RULES: dict[str, Rule] = {
    "BatchToSpaceND": _batch_to_space,
    "BroadcastTo": _broadcast,
    "DepthToSpace": _depth_to_space,
    "Fill": lambda node: node.y.spread_to(tuple(node.integers(0))),
    "MirrorPad": _mirror_pad,
    "MirrorPadGrad": _mirror_pad,
    "Pad": _pad,
    "PadV2": _pad,
    "ReverseV2": _reverse,
    "Roll": _roll,
    "SpaceToBatchND": _space_to_batch,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
}
