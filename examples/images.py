"""Train on images that are cropped and mirrored at random while the IPUs compute.

    python examples/images.py                                            bytes become floats on the host
    python examples/images.py --bytes --io-tiles 64                      bytes become floats on the IPU
    poprun-py --num-instances 2 --num-replicas 2 python examples/images.py
    ipu-emu hostio examples/images.py                                    measure whether the host keeps up

The images are 40 x 40 pixels, with stripes in four directions, random colours and noise; crops are 32 x 32.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart
from ipu_emu.hostio import Feed
from ipu_emu.hostio.data.image_transforms import Images

MEAN, STD = 0.5, 0.25


def stripes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [count, 40, 40, 3] of bytes, and the direction of their stripes in steps of 45 degrees."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, count).astype(np.int32)
    angle = np.pi * labels / 4
    y, x = np.mgrid[:40, :40]
    waves = np.sin(x * np.cos(angle)[:, None, None] + y * np.sin(angle)[:, None, None])[..., None]
    colours, noise = random.uniform(-60, 60, (count, 1, 1, 3)), random.normal(0, 40, (count, 40, 40, 3))
    return np.clip(128 + colours * waves + noise, 0, 255).astype(np.uint8), labels


def parameter(builder: Any, name: str, shape: tuple[int, ...], scale: float) -> Any:
    value = np.random.default_rng(len(name)).normal(0, scale, shape).astype(np.float32)
    return builder.addInitializedInputTensor(value, debugContext=name)


def network(batch: int, *, as_bytes: bool, settings: popart.InputSettings) -> tuple[bytes, list[str], str]:
    """(model, inputs, loss)"""
    builder = popart.Builder()
    kind = "UINT8" if as_bytes else "FLOAT"
    pictures = builder.addInputTensor(popart.TensorInfo(kind, [batch, 3, 32, 32]), settings, "pictures")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [batch]), settings, "labels")
    x = pictures
    if as_bytes:
        scale, shift = (builder.aiOnnx.constant(np.float32(value)) for value in (1 / (255 * STD), MEAN / STD))
        x = builder.aiOnnx.sub([builder.aiOnnx.mul([builder.aiOnnx.cast([x], "FLOAT"), scale]), shift])
    for layer, (outputs, inputs) in enumerate([(16, 3), (32, 16)]):
        weights = parameter(builder, f"conv{layer}", (outputs, inputs, 3, 3), (2 / (9 * inputs)) ** 0.5)
        x = builder.aiOnnx.relu([builder.aiOnnx.conv([x, weights], pads=[1, 1, 1, 1])])
        x = builder.aiOnnx.averagepool([x], kernel_shape=[4, 4], strides=[4, 4])
    dense = parameter(builder, "dense", (128, 4), 0.1)
    probabilities = builder.aiOnnx.softmax([builder.aiOnnx.matmul([builder.aiOnnx.flatten([x]), dense])])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    return builder.getModelProto(), [pictures, labels], loss


def training(model: bytes, loss: str, options: popart.SessionOptions, returns: popart.AnchorReturnType) -> Any:
    """A session that is ready to run."""
    popdist_py.popart.configureSessionOptions(options)
    device = popdist_py.popart.getDevice(1)
    flow, sgd = popart.DataFlow(4, {loss: returns}), popart.ConstSGD(0.3)
    session = popart.TrainingSession(model, flow, loss, sgd, device, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on pictures of stripes.")
    parser.add_argument("--steps", type=int, default=40, help="steps of four batches (default 40)")
    parser.add_argument("--batch", type=int, default=32, help="images per replica and batch (default 32)")
    parser.add_argument("--workers", type=int, help="worker threads (default: number of CPUs minus one)")
    parser.add_argument("--bytes", action="store_true", help="transfer bytes and convert them to floats on the IPU")
    parser.add_argument("--io-tiles", type=int, default=0, help="tiles that load data while the others compute")
    args = parser.parse_args()
    popdist.init()
    options = popart.SessionOptions()
    transfer = (popart.TileSet.Compute, popart.ExchangeStrategy.JustInTime)
    if args.io_tiles:
        options.numIOTiles, transfer = args.io_tiles, (popart.TileSet.IO, popart.ExchangeStrategy.OverlapLoops)
    model, inputs, loss = network(args.batch, as_bytes=args.bytes, settings=popart.InputSettings(*transfer))
    session = training(model, loss, options, popart.AnchorReturnType("All", *transfer))
    how: dict[str, Any] = {"dtype": np.uint8} if args.bytes else {"mean": [MEAN] * 3, "std": [STD] * 3}
    prepare = {"0": Images(crop=(32, 32), layout="CHW", **how)}
    anchors = session.initAnchorArrays()
    with Feed(
        stripes(2048),
        micro_batch=args.batch,
        batches_per_step=4,
        prepare=prepare,
        shuffle=True,
        epochs=None,
        workers=args.workers,
    ) as feed:
        stepio = popart.FeedStepIO(feed, anchors, names=inputs)
        for step in range(args.steps):
            session.run(stepio)
            if step % 10 == 9 and popdist.getInstanceIndex() == 0:
                print(f"step {step + 1:4}   loss {anchors[loss].mean():7.4f}", flush=True)


if __name__ == "__main__":
    main()
