"""Sliding windows: how a convolution or a pooling moves over the spatial axes."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.errors import RefusedError
from ipu_emu.ops.core.node import Node, listed


@dataclass(frozen=True)
class Windows:
    """Per spatial axis: sizes of input, output and kernel, stride, padding before, dilation."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    ends: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, input: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
        """Read the attributes of ``node``; raise where they do not fit the spatial axes."""
        rank = len(input)
        if not rank or len(kernel) != rank:
            raise node.fail(f"the kernel {list(kernel)} needs one size for each spatial axis of {list(input)}")
        strides, dilations = _each(node, "strides", rank), _each(node, "dilations", rank)
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        begins, ends = _pads(node, input, spans, strides)
        output = []
        for size, span, stride, before, after in zip(input, spans, strides, begins, ends, strict=True):
            slack = size + before + after - span
            if min(kernel) < 1:
                raise node.fail(f"kernel sizes {list(kernel)} must be at least 1")
            places = slack // stride + 1
            # With ceil_mode the last window may extend beyond the padded input, but must start inside it.
            if node.attribute("ceil_mode", 0) and slack % stride and places * stride < size + before:
                places += 1
            output.append(places)
        _check_sizes(node, output)
        return cls(input, tuple(output), kernel, strides, begins, ends, dilations)

    @classmethod
    def of_pooling(cls, node: Node, data: tuple[int, ...]) -> Windows:
        """The windows of a pooling of ``data`` [N, C, ...], whose kernel is an attribute."""
        return cls.of(node, data[2:], tuple(node.attribute("kernel_shape", [])))

    @property
    def numbers(self) -> tuple[int, ...]:
        """(kernel, strides, pads, dilations), each height then width, as the kernels take them."""
        return (*self.kernel, *self.strides, *self.pads, *self.dilations)

    @property
    def is_pointwise(self) -> bool:
        """Whether every window is one element and the windows cover the input in order."""
        return self.kernel == self.strides == (1, 1) and self.input == self.output

    def places(self, axis: int) -> list[list[int]]:
        """For each kernel element of ``axis``, the input index that each output reads; padding is outside."""
        start, stride, dilation = -self.pads[axis], self.strides[axis], self.dilations[axis]
        return [
            [start + out * stride + tap * dilation for out in range(self.output[axis])]
            for tap in range(self.kernel[axis])
        ]

    def counts(self, axis: int, *, padding: bool) -> list[int]:
        """How many elements of each window of ``axis`` are in the input, or with ``padding`` in the padded input."""
        low = -self.pads[axis] if padding else 0
        high = self.input[axis] + (self.ends[axis] if padding else 0)
        return [sum(low <= place < high for place in column) for column in zip(*self.places(axis), strict=True)]


def _check_sizes(node: Node, output: list[int]) -> None:
    if min(output) < 0:
        channels = node.input(1 if len(node.inputs) > 1 else 0)
        shape = [node.input(0).shape[0], channels.shape[0 if len(node.inputs) > 1 else 1], *output]
        raise RefusedError(
            f"Output '{''.join(node.op.outputs[:1])}' of node '{node.op.type}' has invalid shape, {listed(shape)}. "
            "Values must be non-negative in each shape dimension."
        )
    if min(output) <= 0:
        raise RefusedError(f"Window parameter values combine to give invalid spatial output shape: {listed(output)}")


def _each(node: Node, name: str, rank: int) -> tuple[int, ...]:
    values = list(node.attribute(name, [])) or [1] * rank
    if len(values) != rank:
        raise RefusedError(f"Length of {name} vector {len(values)} != number of spatial dimensions {rank}")
    if min(values) < 1:
        raise node.fail(f"{name} {values} must be {rank} numbers of at least 1")
    return tuple(values)


def _pads(
    node: Node, input: tuple[int, ...], spans: list[int], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(before, after) of every axis: as given, or such that the output size is input size / stride."""
    rank, kind = len(input), node.attribute("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        needed = [
            max((-(-size // stride) - 1) * stride + span - size, 0)
            for size, stride, span in zip(input, strides, spans, strict=True)
        ]
        small = tuple(n // 2 for n in needed)
        large = tuple(n - n // 2 for n in needed)
        return (small, large) if kind == "SAME_UPPER" else (large, small)
    pads = (list(node.attribute("pads", [])) if kind == "NOTSET" else []) or [0] * 2 * rank
    if len(pads) != 2 * rank:
        raise RefusedError(
            f"Padding vector (length {len(pads)}) does not have 2 values for each spatial dimension {rank}"
        )
    if min(pads) < 0:
        raise node.fail(f"pads {pads} must be {2 * rank} non-negative numbers, all begins before all ends")
    return tuple(pads[:rank]), tuple(pads[rank:])
