"""Multi-convolution: convolutions that are planned together (aiGraphcore), as one convolution each.

The inputs are x, w and a bias or nothing for each; parameter ``name`` of convolution i is the attribute ``name_i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipu_emu.graph import Op
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Node, OutputTypes, Rewrite, expanded_op, flops
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.core.spatial_rank import spaced

_EACH = 3


@dataclass(frozen=True)
class _Parameters:
    """One convolution: dilation of its data, padding of its result, group, and the attributes of its Conv."""

    spread: list[int]
    around: list[int]
    group: int
    conv: dict[str, Any]

    @classmethod
    def of(cls, node: Node, index: int) -> _Parameters:
        x, w = node.input(_EACH * index), node.input(_EACH * index + 1)
        rank = x.rank - 2
        if rank < 1 or w.rank != x.rank or not w.shape[1] or x.shape[1] % w.shape[1]:
            raise node.fail(f"convolution {index} needs data [N, C, ...] and weights [M, C / g, ...], found {x}, {w}")

        def axes(name: str, default: list[int]) -> list[int]:
            values = list(node.attribute(f"{name}_{index}", [])) or default
            if len(values) != len(default) or min(values) < min(default):
                raise node.fail(f"{name} {values} of convolution {index} do not fit {rank} spatial axes")
            return values

        group = x.shape[1] // w.shape[1]
        conv = {name: axes(name, [1] * rank) for name in ("strides", "dilations")}
        conv["pads"] = axes("pads", [0] * 2 * rank)
        return cls(axes("inDilations", [1] * rank), axes("outPads", [0] * 2 * rank), group, conv | {"group": group})

    def output(self, node: Node, index: int) -> tuple[int, ...]:
        x, w = node.input(_EACH * index), node.input(_EACH * index + 1)
        wide = tuple((n - 1) * d + 1 for n, d in zip(x.shape[2:], self.spread, strict=True))
        inner = Windows.of(Node(Op("Conv", (), (), self.conv), node.inputs), wide, w.shape[2:]).output
        rank = len(inner)
        sizes = (n + a + b for n, a, b in zip(inner, self.around[:rank], self.around[rank:], strict=True))
        return (x.shape[0], w.shape[0], *sizes)


def _count(node: Node) -> int:
    """The number of convolutions; a model may leave out the last input, an absent bias."""
    count, left = divmod(len(node.inputs), _EACH)
    if left == 1:
        raise node.fail(
            f"{len(node.inputs)} inputs were given; each convolution takes data, weights and maybe a bias"
        )
    return count + (left > 0)


def _shape(node: Node) -> OutputTypes:
    return [
        (node.input(_EACH * index).dtype, _Parameters.of(node, index).output(node, index))
        for index in range(_count(node))
    ]


def _dilated(rewrite: Rewrite, x: str, shape: tuple[int, ...], spread: list[int]) -> str:
    """``x`` with zeros between the elements of the spatial axes."""
    if max(spread) == 1:
        return x
    wide = spaced(rewrite, x, shape, spread)
    ends = [(size - 1) * d + 1 for size, d in zip(shape[2:], spread, strict=True)]
    return rewrite.op("Slice", wide, starts=[0] * len(ends), ends=ends, axes=list(range(2, 2 + len(ends))))


def _expand(rewrite: Rewrite, node: Node) -> None:
    for index, output in enumerate(node.op.outputs):
        parameters = _Parameters.of(node, index)
        x, w, *bias = (id for id in node.op.inputs[_EACH * index : _EACH * (index + 1)] if id)
        x = _dilated(rewrite, x, rewrite.shape(x), parameters.spread)
        y = rewrite.op("Conv", x, w, *bias, **parameters.conv)
        low, high = parameters.around[: len(parameters.spread)], parameters.around[len(parameters.spread) :]
        rewrite.op("Pad", y, into=output, pads=[0, 0, *low, 0, 0, *high], mode="constant", value=0.0)


def _work(node: Node) -> int:
    return sum(
        2 * y.nelms * node.input(_EACH * i + 1).nelms // max(y.shape[1], 1) for i, y in enumerate(node.outputs)
    )


OPS = [expanded_op("MultiConv", (2, None), _shape, _expand, flops(_work), domain=GRAPHCORE)]
