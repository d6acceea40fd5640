"""Architectures: the 13 published networks that benchmarks/models.py measures, smaller, exported by PyTorch as ONNX.

They keep their kinds of layers, and have fewer and narrower ones.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ipu_emu import popart
from tests.golden.exact_values import set_tensors
from tests.golden.program import Program
from tests.golden.programs.popart_models import Inputs, inferred, trained

__all__ = ["PROGRAMS"]

_HALF = popart.SGD(
    {"defaultLearningRate": (2**-9, False), "defaultMomentum": (0.875, True), "lossScaling": (64.0, False)},
    accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
)
_SINGLE = popart.SGD(
    {"defaultLearningRate": (2**-7, False), "defaultMomentum": (0.875, True)},
    accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
)


@dataclass(frozen=True)
class _Network:
    """``make`` builds the network from the modules with vision and language; images or tokens of ``shape``."""

    make: Callable[[Any, Any], Any]
    shape: tuple[int, ...]
    tokens: bool = False

    def inputs(self, dtype: str) -> Inputs:
        labels = self.shape if self.tokens else self.shape[:1]
        data = ("int32", self.shape, 1000) if self.tokens else (dtype, self.shape, 0)
        return {"x": data, "t": ("int32", labels, 100)}


def _narrow(kind: Any, rows: tuple[Any, ...]) -> Any:
    """The network ``kind`` with other rows in its table of blocks."""
    return type(kind.__name__, (kind,), {"rows": rows})()


_TEXT = {"length": 12, "width": 32, "depth": 2, "heads": 2}
_V2 = ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 1, 1))
_V3 = ((3, 16, 16, 1, 0, 2), (5, 24, 24, 1, 1, 2), (5, 48, 24, 1, 1, 1))

_NETWORKS: dict[str, _Network] = {
    "mlp": _Network(lambda vision, _: vision.mlp(48), (4, 784)),
    "resnet18": _Network(lambda vision, _: vision.ResNet((1, 1, 1, 1), 8), (2, 3, 32, 32)),
    "mobilenet_v2": _Network(lambda vision, _: _narrow(vision.MobileNetV2, _V2), (2, 3, 32, 32)),
    "mobilenet_v3": _Network(lambda vision, _: _narrow(vision.MobileNetV3, _V3), (2, 3, 32, 32)),
    "squeezenet": _Network(lambda vision, _: vision.SqueezeNet(), (2, 3, 40, 40)),
    "convnext": _Network(lambda vision, _: vision.ConvNeXt((1, 1, 2, 1), (8, 16, 24, 32)), (2, 3, 32, 32)),
    "vit": _Network(lambda vision, _: vision.ViT(24, 8, 32, 2, 2), (2, 3, 24, 24)),
    "bert": _Network(lambda _, language: language.Bert(**_TEXT), (2, 12), tokens=True),
    "gpt2": _Network(lambda _, language: language.Gpt2(**_TEXT), (2, 12), tokens=True),
    "llama": _Network(lambda _, language: language.Llama(**_TEXT), (2, 12), tokens=True),
    "t5": _Network(lambda _, language: language.T5(12, 32, 1, 2), (2, 12), tokens=True),
    "whisper": _Network(lambda _, language: language.WhisperEncoder(16, 32, 2, 2), (2, 80, 16)),
    "lstm": _Network(lambda _, language: language.LstmModel(24), (2, 12), tokens=True),
}


def _exported(name: str, *, training: bool, half: bool) -> tuple[bytes, list[str]]:
    """The network as ONNX, with its loss for training; and the names of its parameters."""
    import torch

    from benchmarks.support.torch_networks import language, vision

    class WithLoss(torch.nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, t: Any) -> Any:
            y = self.net(x)
            return torch.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))

    network = _NETWORKS[name]
    net = set_tensors(network.make(vision, language)).train(training)
    net = net.half() if half else net
    before = {f"net.{name}": tensor.detach().clone().numpy() for name, tensor in net.named_buffers()}
    shapes, file = network.inputs("float16" if half else "float32"), io.BytesIO()
    x, t = (torch.zeros(shape, dtype=getattr(torch, kind)) for kind, shape, _ in shapes.values())
    # Evaluation mode alone would fold batch normalisations into convolutions, with PyTorch's arithmetic.
    how: dict[str, Any] = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    how |= {"dynamo": False, "opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if training:
            torch.onnx.export(
                WithLoss(net), (x, t.long()), file, input_names=["x", "t"], output_names=["loss"], **how
            )
        else:
            torch.onnx.export(net, (x,), file, input_names=["x"], output_names=["y"], **how)
    return _with_values(file.getvalue(), before), [f"net.{name}" for name, _ in net.named_parameters()]


def _with_values(proto: bytes, values: dict[str, Any]) -> bytes:
    """The model with these values: exporting computes running statistics, with PyTorch's arithmetic."""
    import onnx

    model = onnx.load_model_from_string(proto)
    for tensor in model.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(onnx.numpy_helper.from_array(values[tensor.name], tensor.name))
    return model.SerializeToString()


def _train(name: str, *, half: bool = False, ipus: int = 1) -> dict[str, str]:
    proto, weights = _exported(name, training=True, half=half)
    inputs = _NETWORKS[name].inputs("float16" if half else "float32")
    how: dict[str, Any] = {"A": 4, "steps": 2} if ipus > 1 else {"steps": 3}
    if ipus > 1:
        how |= {"virtualGraphMode": popart.VirtualGraphMode.Auto, "enablePipelining": True}
    rule = _HALF if half else _SINGLE
    return trained(proto, inputs, "loss", optimiser=rule, ipus=ipus, trainedWeights=weights, **how)


def _infer(name: str, *, half: bool) -> dict[str, str]:
    proto, _ = _exported(name, training=False, half=half)
    inputs = dict(list(_NETWORKS[name].inputs("float16" if half else "float32").items())[:1])
    return inferred(proto, inputs, ["y"])


def _programs(name: str) -> dict[str, Program]:
    """Both types, forward only and trained, and as a pipeline of two IPUs."""
    runs = {
        "": partial(_train, name),
        ", float16": partial(_train, name, half=True),
        ", pipeline": partial(_train, name, ipus=2),
        ", forward": partial(_infer, name, half=False),
        ", forward, float16": partial(_infer, name, half=True),
    }
    quick = name in ("llama", "mobilenet_v3")
    return {f"architecture: {name}{how}": Program(run, ("torch",), quick=quick) for how, run in runs.items()}


PROGRAMS = {title: program for name in _NETWORKS for title, program in _programs(name).items()}
