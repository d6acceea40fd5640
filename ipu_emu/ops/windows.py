"""Windows: how a convolution or a pooling slides over height and width."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.ops.node import Node

__all__ = ["Windows"]


@dataclass(frozen=True)
class Windows:
    """Per axis (height, width): sizes of input, output and kernel, stride, padding before, dilation."""

    input: tuple[int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    dilations: tuple[int, int]

    @classmethod
    def of(cls, node: Node, input: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
        """Read the attributes of ``node``; raise where they do not fit two spatial axes."""
        if len(input) != 2 or len(kernel) != 2:
            raise node.fail(f"height and width are needed, found input {list(input)} and kernel {list(kernel)}")
        strides = _pair(node, "strides", 1)
        dilations = _pair(node, "dilations", 1)
        pads = list(node.attribute("pads", [])) or [0, 0, 0, 0]
        if len(pads) != 4 or min(pads) < 0:
            raise node.fail(f"pads {pads} were given; give 4 numbers that are not negative: begins, then ends")
        output = []
        for axis in range(2):
            room = input[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1
            if room < 0:
                raise node.fail(f"kernel {list(kernel)} is larger than the padded input {list(input)}")
            places = room // strides[axis] + 1
            # With ceil_mode a last window may hang over the end, but must start inside.
            if (
                node.attribute("ceil_mode", 0)
                and room % strides[axis]
                and places * strides[axis] < input[axis] + pads[axis]
            ):
                places += 1
            output.append(places)
        return cls(
            (input[0], input[1]),
            (output[0], output[1]),
            (kernel[0], kernel[1]),
            strides,
            (pads[0], pads[1]),
            dilations,
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """(kernel, strides, pads, dilations), each height then width, as the kernels take them."""
        return (*self.kernel, *self.strides, *self.pads, *self.dilations)

    @property
    def is_pointwise(self) -> bool:
        """Say whether every window is one element and the windows cover the input in order."""
        return self.kernel == self.strides == (1, 1) and self.input == self.output


def _pair(node: Node, name: str, default: int) -> tuple[int, int]:
    values = list(node.attribute(name, [])) or [default, default]
    if len(values) != 2 or min(values) < 1:
        raise node.fail(f"{name} {values} were given; give 2 numbers of at least 1")
    return values[0], values[1]
