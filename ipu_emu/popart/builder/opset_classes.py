"""Opset classes: a class for each version of an operator set, under PopART's names."""

from __future__ import annotations

from ipu_emu.popart.builder.opsets import AiGraphcore, AiOnnx, AiOnnxMl

__all__ = [
    "OPSETS",
    "AiGraphcoreOpset1",
    "AiOnnxMlOpset1",
    "AiOnnxOpset6",
    "AiOnnxOpset7",
    "AiOnnxOpset8",
    "AiOnnxOpset9",
    "AiOnnxOpset10",
    "AiOnnxOpset11",
]


class AiOnnxOpset6(AiOnnx):
    """ai.onnx 6."""


class AiOnnxOpset7(AiOnnx):
    """ai.onnx 7."""


class AiOnnxOpset8(AiOnnx):
    """ai.onnx 8."""


class AiOnnxOpset9(AiOnnx):
    """ai.onnx 9."""


class AiOnnxOpset10(AiOnnx):
    """ai.onnx 10."""


class AiOnnxOpset11(AiOnnx):
    """ai.onnx 11."""


class AiOnnxMlOpset1(AiOnnxMl):
    """ai.onnx.ml 1."""


class AiGraphcoreOpset1(AiGraphcore):
    """ai.graphcore 1."""


#: ai.onnx by version.
OPSETS: dict[int, type[AiOnnx]] = {
    6: AiOnnxOpset6,
    7: AiOnnxOpset7,
    8: AiOnnxOpset8,
    9: AiOnnxOpset9,
    10: AiOnnxOpset10,
    11: AiOnnxOpset11,
}
