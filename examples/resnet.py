"""Train a small ResNet exported by PyTorch, and export its weights: PyTorch -> ONNX -> session -> ONNX.

    python examples/resnet.py
    python examples/resnet.py --replicas 2 --epochs 3

PyTorch is needed only to export the model. ``--model FILE`` trains any ONNX file instead, with an input
[batch, 1, 8, 8] and an output with a column for each of the ten digits.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mnist import load

import ipu_emu.popart as popart

BATCH, MICRO_BATCHES = 16, 8


def written_by_pytorch(file: Path) -> Path:
    """A ResNet with a stem and two residual blocks, in training form."""
    try:
        import torch
        from torch import nn
    except ImportError:
        raise SystemExit(
            "examples/resnet.py exports its model with PyTorch, which is not installed; install torch, or name an "
            "ONNX file with --model"
        ) from None

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outer),
                nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outer),
            )
            self.side = nn.Conv2d(inner, outer, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.side(x))

    torch.manual_seed(0)
    stem = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    top = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    net = nn.Sequential(*stem, Block(16, 16, 1), Block(16, 32, 2), *top)
    with warnings.catch_warnings(action="ignore"):  # of an exporter that PyTorch replaces by another package
        torch.onnx.export(
            net,
            (torch.zeros(BATCH, 1, 8, 8),),
            str(file),
            input_names=["images"],
            output_names=["logits"],
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            dynamo=False,
            opset_version=11,
        )
    return file


def with_loss(model: Path) -> tuple[popart.Builder, str, str, str, str]:
    """(builder, images, labels, probabilities, loss): the model of a file, with what training needs in addition."""
    transformer = popart.GraphTransformer(str(model))
    transformer.prepareNodesForTraining()
    builder = popart.Builder(transformer.getModelProto())
    (logits,) = builder.getOutputTensorIds()
    images = next(id for id in builder.getInputTensorIds() if not builder.isInitializer(id))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]), "labels")
    probabilities = builder.aiOnnx.softmax([logits])
    return builder, images, labels, probabilities, builder.aiGraphcore.nllloss([probabilities, labels])


def options(replicas: int) -> popart.SessionOptions:
    opts = popart.SessionOptions()
    opts.enableReplicatedGraphs, opts.replicatedGraphCount = replicas > 1, replicas
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return opts


def steps(images: np.ndarray, labels: np.ndarray, replicas: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Complete steps of data in random order; the rest is left out."""
    size = BATCH * MICRO_BATCHES
    order = np.random.default_rng(len(images)).permutation(len(images))[: len(images) // size * size]
    shape = (MICRO_BATCHES // replicas, replicas, BATCH)
    return [
        (images[chosen].reshape(*shape, 1, 8, 8), labels[chosen].reshape(shape)) for chosen in order.reshape(-1, size)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, help="an ONNX file (default: exported by PyTorch)")
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or written_by_pytorch(Path(folder) / "resnet.onnx")
        builder, images, labels, probabilities, loss = with_loss(model)
    opts = options(args.replicas)
    flow = popart.DataFlow(MICRO_BATCHES // args.replicas, [loss, probabilities])
    session = popart.TrainingSession(
        builder.getModelProto(),
        flow,
        loss,
        popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)}),
        popart.DeviceManager().createSimDevice({"numIPUs": args.replicas, "tilesPerIPU": 1472}),
        userOptions=opts,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x, y, _, _ = load()
    for epoch in range(args.epochs):
        losses, right, seen = [], 0, 0
        for data, wanted in steps(x, y, args.replicas):
            session.run(popart.PyStepIO({images: data, labels: wanted}, anchors))
            losses.append(float(anchors[loss].mean()))
            right += int((anchors[probabilities].argmax(-1).reshape(-1) == wanted.reshape(-1)).sum())
            seen += wanted.size
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}, {100 * right / seen:.1f}% right while training")


if __name__ == "__main__":
    main()
