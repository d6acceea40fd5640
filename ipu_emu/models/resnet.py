"""ResNet: residual networks for images; ResNet-8 for 32 x 32 pixels, ResNet-50 (v1.5) for 224 x 224."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ipu_emu.models.model import Model
from ipu_emu.models.network import Network


class _Layers(Network):
    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int, name: str) -> str:
        """Convolution without bias, then batch normalisation."""
        scale = sqrt(2 / (inputs * kernel * kernel))
        w = self.normal((outputs, inputs, kernel, kernel), scale, f"{name}/weights")
        y = self.onnx("Conv", x, w, pads=[kernel // 2] * 4, strides=[stride, stride])
        kinds = (("scale", 1), ("bias", 0), ("mean", 0), ("variance", 1))
        statistics = [self.full((outputs,), value, f"{name}/{kind}") for kind, value in kinds]
        return self.onnx("BatchNormalization", y, *statistics, outputs=5)

    def relu(self, x: str) -> str:
        return self.onnx("Relu", x)

    def joined(self, y: str, x: str) -> str:
        return self.relu(self.onnx("Add", y, x))

    def basic(self, x: str, inputs: int, outputs: int, stride: int, name: str) -> str:
        y = self.relu(self.conv(x, inputs, outputs, 3, stride, f"{name}/conv1"))
        y = self.conv(y, outputs, outputs, 3, 1, f"{name}/conv2")
        if stride > 1 or inputs != outputs:
            x = self.conv(x, inputs, outputs, 1, stride, f"{name}/shortcut")
        return self.joined(y, x)

    def bottleneck(self, x: str, inputs: int, width: int, stride: int, name: str) -> str:
        y = self.relu(self.conv(x, inputs, width, 1, 1, f"{name}/conv1"))
        y = self.relu(self.conv(y, width, width, 3, stride, f"{name}/conv2"))
        y = self.conv(y, width, 4 * width, 1, 1, f"{name}/conv3")
        if stride > 1 or inputs != 4 * width:
            x = self.conv(x, inputs, 4 * width, 1, stride, f"{name}/shortcut")
        return self.joined(y, x)

    def classifier(self, x: str, data: str, labels: str, inputs: int, classes: int) -> Model:
        y = self.onnx("ReduceMean", x, axes=[2, 3], keepdims=0)
        w = self.normal((inputs, classes), sqrt(1 / inputs), "classifier/weights")
        y = self.onnx("Gemm", y, w, self.full((classes,), 0, "classifier/bias"))
        return Model(self.graph, data, labels, y, self.loss(y, labels))


def resnet8(*, batch: int, classes: int = 10, dtype: Any = np.float32, seed: int | None = 0) -> Model:
    """Three blocks of 16, 32 and 64 channels for images [3, 32, 32]."""
    net = _Layers(dtype, seed)
    data = net.input((batch, 3, 32, 32), "data")
    labels = net.input((batch,), "labels", "INT32")
    y = net.relu(net.conv(data, 3, 16, 3, 1, "stem"))
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        y = net.basic(y, inputs, outputs, stride, f"block{outputs}")
    return net.classifier(y, data, labels, 64, classes)


def resnet50(
    *, batch: int, classes: int = 1000, size: int = 224, dtype: Any = np.float32, seed: int | None = 0
) -> Model:
    """Version 1.5: the stride of a block is in its 3 x 3 convolution."""
    net = _Layers(dtype, seed)
    data = net.input((batch, 3, size, size), "data")
    labels = net.input((batch,), "labels", "INT32")
    y = net.relu(net.conv(data, 3, 64, 7, 2, "stem"))
    y = net.onnx("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    inputs = 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = net.bottleneck(y, inputs, width, stride, f"stage{stage}/block{block}")
            inputs = 4 * width
    return net.classifier(y, data, labels, inputs, classes)
