"""Convolutional networks: ResNet, ResNeXt, EfficientNet and UNet as blocks.

A convolution is followed by batch normalisation (10 operations per element) and a function (ReLU 1, swish 8).
The backward pass reads the results of both. A matrix unit multiplies 16 channels at a time: groups of fewer leave it
partly idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil

from ipu_emu.predict.layer_parameters import batch_norm, convolution, dense
from ipu_emu.predict.networks.block import (
    LOSS_STEPS,
    BlockKind,
    BlockProduct,
    Network,
    NetworkBlock,
    images,
    weighted,
)

_NORM, _RELU, _SWISH = 10, 1, 8
_CHANNELS = 16


@dataclass
class _Sum:
    """Sums up the layers of one block."""

    name: str
    kind: BlockKind = BlockKind.LAYER
    parameters: int = 0
    statistics: int = 0
    products: list[BlockProduct] = field(default_factory=list)
    vector: float = 0.0
    steps: int = 0
    training_steps: int = 0
    idle: float = 0.0
    stashed: float = 0.0
    output: float = 0.0
    transient: float = 0.0
    norms: list[int] = field(default_factory=list)

    def convolution(
        self,
        side: int,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        groups: int = 1,
        function: int = _RELU,
        norm: bool = True,
        bias: bool = False,
        shortcut: bool = False,
        stride: int = 1,
        data: bool = False,
    ) -> None:
        """A convolution with a result of ``side`` x ``side`` pixels; a ``shortcut`` is only added to another.

        ``data``: it reads the images.

        The operand of the normalisation is kept, and the result of the function.
        """
        pixels, weights = side * side * outputs, convolution((kernel, kernel), inputs // groups, outputs, bias=bias)
        flops = 2.0 * side * side * weights.weights
        here = inputs // groups
        self.parameters += weights.trainable
        read = float(inputs * (stride * side) ** 2)
        self.products.append(
            BlockProduct("convolution", read, float(weights.weights), float(pixels), flops / 2, data=data)
        )
        self.idle += flops * (_CHANNELS / here - 1) if groups > 1 and here < _CHANNELS else 0.0
        self.vector += pixels * ((_NORM if norm else 0) + function)
        self.stashed += pixels * (2 if norm and not shortcut else 1)
        self.output = pixels
        self.transient = max(self.transient, 2 * pixels)
        if norm:
            scales = batch_norm(outputs)
            self.parameters += scales.trainable
            self.statistics += scales.non_trainable
            self.norms.append(outputs)
            self.steps += 1
        self.training_steps += 1  # the gradient of the normalisation, or of the bias

    def transposed(self, side: int, inputs: int, outputs: int) -> None:
        """A transposed convolution of 2 x 2 that doubles the sides, with a bias."""
        pixels = side * side * outputs
        self.parameters += 4 * inputs * outputs + outputs
        read = float(side * side * inputs // 4)
        weights = float(4 * inputs * outputs)
        self.products.append(
            BlockProduct("convolution", read, weights, float(pixels), float(side * side * inputs * outputs))
        )
        self.training_steps += 1
        self.vector += pixels
        self.stashed += pixels

    def dense(self, inputs: int, outputs: int, *, function: int = _RELU, data: bool = False) -> None:
        self.parameters += dense(inputs, outputs).trainable
        self.products.append(weighted(1, inputs, outputs, data=data))
        self.training_steps += 1
        self.vector += outputs * function
        self.stashed += outputs
        self.output = outputs

    def block(self) -> NetworkBlock:
        lists = {"products": tuple(self.products), "norms": tuple(self.norms)}
        return NetworkBlock(**vars(self) | lists | {"stashed": self.stashed - self.output})


def _classifier(inputs: int, classes: int, side: int) -> NetworkBlock:
    layer = _Sum("classifier", BlockKind.HEAD)
    layer.vector += side * side * inputs
    layer.stashed += inputs
    layer.dense(inputs, classes, function=6)
    layer.steps += 1  # the mean of all pixels
    layer.training_steps += 1 + LOSS_STEPS
    return layer.block()


def mlp(*, sizes: tuple[int, ...] = (784, 512, 512, 10)) -> Network:
    """Fully connected layers."""
    blocks = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        layer = _Sum(f"layer{index}")
        layer.dense(inputs, outputs, data=not index)
        layer.training_steps += LOSS_STEPS * (index == len(sizes) - 2)
        blocks.append(layer.block())
    return Network(
        "mlp", "fully connected", "samples", tuple(blocks), sizes[0], "float16", result_values=float(sizes[-1])
    )


def resnet8(*, classes: int = 10) -> Network:
    """Three blocks of 16, 32 and 64 channels for images of 32 x 32."""
    stem = _Sum("stem", BlockKind.STEM)
    stem.convolution(32, 3, 16, 3, data=True)
    blocks, side = [stem.block()], 32
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layer = _Sum(f"block{outputs}")
        side //= stride
        layer.convolution(side, inputs, outputs, 3, stride=stride)
        if stride > 1:
            layer.convolution(side, inputs, outputs, 1, function=0, shortcut=True, stride=stride)
        layer.convolution(side, outputs, outputs, 3, function=2)
        blocks.append(layer.block())
    return images("resnet8", [*blocks, _classifier(64, classes, side)], 32, classes)


def _bottlenecks(
    name: str, counts: tuple[int, ...], *, groups: int, base: int, size: int, classes: int, first: int = 64
) -> Network:
    stem = _Sum("stem", BlockKind.STEM)
    side = ceil(size / 2)
    stem.convolution(side, 3, 64, 7, stride=2, data=True)
    side = ceil(side / 2)
    stem.steps += 1  # pooling
    stem.training_steps += 1
    stem.stashed += side * side * 64
    stem.output = side * side * 64
    blocks, inputs = [stem.block()], 64
    for stage, count in enumerate(counts):
        outputs, width = 4 * first << stage, (base * groups) << stage
        for index in range(count):
            layer = _Sum(f"stage{stage}/block{index}")
            layer.convolution(side, inputs, width, 1)
            stride = 2 if stage and not index else 1
            side = ceil(side / stride)
            layer.convolution(side, width, width, 3, groups=groups, stride=stride)
            if not index:
                layer.convolution(side, inputs, outputs, 1, function=0, shortcut=True, stride=stride)
            layer.convolution(side, width, outputs, 1, function=2)
            blocks.append(layer.block())
            inputs = outputs
    return images(name, [*blocks, _classifier(inputs, classes, side)], size, classes)


def resnet(counts: tuple[int, ...], *, size: int = 224, classes: int = 1000) -> Network:
    """``counts`` blocks in each stage; version 1.5: the stride of a block is in its 3 x 3 convolution."""
    return _bottlenecks("resnet", counts, groups=1, base=64, size=size, classes=classes)


def resnet50(*, size: int = 224, classes: int = 1000) -> Network:
    """ResNet-50, version 1.5."""
    return resnet((3, 4, 6, 3), size=size, classes=classes)


def resnext101(*, width: int = 4, size: int = 224, classes: int = 1000) -> Network:
    """ResNeXt-101 with 32 groups of ``width`` channels."""
    return _bottlenecks("resnext101", (3, 4, 23, 3), groups=32, base=width, size=size, classes=classes)


#: Stages of EfficientNet-B0: expansion, kernel, stride, channels, layers.
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def _rounded(channels: float) -> int:
    """The multiple of eight nearest to ``channels``, but not below 90 % of it."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def efficientnet(*, width: float = 1.4, depth: float = 1.8, size: int = 380, classes: int = 1000) -> Network:
    """EfficientNet, by default B4: inverted residuals with squeeze and excitation."""
    side, inputs = ceil(size / 2), _rounded(32 * width)
    stem = _Sum("stem", BlockKind.STEM)
    stem.convolution(side, 3, inputs, 3, function=_SWISH, stride=2, data=True)
    blocks = [stem.block()]
    for stage, (expansion, kernel, stride, channels, layers) in enumerate(_STAGES):
        outputs = _rounded(channels * width)
        for index in range(ceil(layers * depth)):
            layer = _Sum(f"stage{stage}/block{index}")
            inner = inputs * expansion
            if expansion > 1:
                layer.convolution(side, inputs, inner, 1, function=_SWISH)
            step = 1 if index else stride
            side = ceil(side / step)
            layer.convolution(side, inner, inner, kernel, groups=inner, function=_SWISH, stride=step)
            squeezed = max(1, inputs // 4)
            layer.dense(inner, squeezed, function=_SWISH)
            layer.dense(squeezed, inner, function=_SWISH)
            layer.vector += 2 * side * side * inner
            layer.convolution(side, inner, outputs, 1, function=1)
            blocks.append(layer.block())
            inputs = outputs
    last = _Sum("last")
    last.convolution(side, inputs, 4 * inputs, 1, function=_SWISH)
    head = _classifier(4 * inputs, classes, side)
    return images("efficientnet", [*blocks, last.block(), head], size, classes)


def unet(*, size: int = 512, classes: int = 2) -> Network:
    """UNet with batch normalisation: 64 to 1,024 channels down, and up again by transposed convolutions."""
    blocks, inputs, side = [], 3, size
    for level in range(5):
        layer, outputs = _Sum(f"down{level}"), 64 << level
        layer.convolution(side, inputs, outputs, 3, data=not level)
        layer.convolution(side, outputs, outputs, 3)
        blocks.append(layer.block())
        inputs, side = outputs, side // 2
    side *= 2
    for level in reversed(range(4)):
        layer, outputs = _Sum(f"up{level}"), 64 << level
        side *= 2
        layer.transposed(side, inputs, outputs)
        layer.convolution(side, inputs, outputs, 3)
        layer.convolution(side, outputs, outputs, 3)
        blocks.append(layer.block())
        inputs = outputs
    head = _Sum("classes", BlockKind.HEAD)
    head.convolution(size, inputs, classes, 1, norm=False, bias=True, function=6)
    head.training_steps += LOSS_STEPS
    network = images("unet", [*blocks, head.block()], size, size * size * classes)
    return replace(network, label_bytes=size * size)
