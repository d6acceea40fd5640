"""Train on hand-written digits that are rotated at random, for each step or once before training.

    python examples/turned_digits.py                  the feed turns each image, pixel by pixel
    python examples/turned_digits.py --turn ahead     every image is turned by every angle before the first step

docs/guides/why-is-it-slow.md finds out why the first is slow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from itertools import pairwise
from math import cos, radians, sin
from pathlib import Path
from typing import Any

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist
import popdist_py.popart
from ipu_emu.hostio import Feed

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
BATCH, BATCHES, HIDDEN, SIDE = 32, 4, 256, 8
ANGLES = range(-20, 21)  # degrees

Sample = Mapping[str, np.ndarray]


def origin(angle: int, row: int, column: int) -> tuple[int, int]:
    """The pixel that comes to (row, column) when the image is turned; beyond the edge the nearest one."""
    middle, turn = (SIDE - 1) / 2, radians(angle)
    y, x = row - middle, column - middle
    place = (round(middle + cos(turn) * y - sin(turn) * x), round(middle + sin(turn) * y + cos(turn) * x))
    return min(max(place[0], 0), SIDE - 1), min(max(place[1], 0), SIDE - 1)


def turned(sample: Sample, random: np.random.Generator) -> Sample:
    """Turn the image by a random angle."""
    angle, image = ANGLES[random.integers(len(ANGLES))], sample["image"].reshape(SIDE, SIDE)
    pixels = np.empty_like(image)
    for row in range(SIDE):
        for column in range(SIDE):
            pixels[row, column] = image[origin(angle, row, column)]
    return {"image": pixels.reshape(-1), "label": sample["label"]}


def all_turned(data: Sample) -> Sample:
    """Every image turned by every angle."""
    places = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    origins = np.array([[origin(angle, *place) for place in places] for angle in ANGLES]) @ (SIDE, 1)
    images = data["image"][:, origins]  # [images, angles, pixels]
    return {"image": images.reshape(-1, SIDE * SIDE), "label": np.repeat(data["label"], len(ANGLES))}


def network() -> tuple[Any, list[str], str]:
    """The session, its inputs, and its loss."""
    builder, random = popart.Builder(), np.random.default_rng(0)
    image = builder.addInputTensor("FLOAT", [BATCH, SIDE * SIDE], "image")
    label = builder.addInputTensor("INT32", [BATCH], "label")
    x, sizes = image, (SIDE * SIDE, HIDDEN, HIDDEN, 10)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        x = builder.aiOnnx.tanh([x]) if layer else x
        weights = random.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
        x = builder.aiOnnx.matmul([x, builder.addInitializedInputTensor(weights, f"layer{layer}")])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([x]), label])
    options = popart.SessionOptions()
    popdist_py.popart.configureSessionOptions(options)
    flow, device = popart.DataFlow(BATCHES, [loss]), popdist_py.popart.getDevice(1)
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device, userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, [image, label], loss


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits that are turned at random.", allow_abbrev=False)
    parser.add_argument(
        "--turn", choices=["feed", "ahead"], default="feed", help="when images are turned (default feed)"
    )
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of four batches (default 200)")
    args = parser.parse_args()
    popdist.init()
    table = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    data = {"image": table[:, :-1] / 8 - 1, "label": table[:, -1].astype(np.int32)}
    prepare = turned if args.turn == "feed" else None
    data = data if prepare else all_turned(data)
    session, inputs, loss = network()
    anchors = session.initAnchorArrays()
    how = {"batches_per_step": BATCHES, "shuffle": True, "epochs": None}
    with Feed(data, micro_batch=BATCH, prepare=prepare, **how) as feed:
        stepio = popart.FeedStepIO(feed, anchors, names=dict(zip(data, inputs, strict=True)))
        begin = time.perf_counter()
        for _ in range(args.steps):
            session.run(stepio)
        seconds = time.perf_counter() - begin
    if popdist.getInstanceIndex() == 0:
        rate = args.steps * BATCHES * BATCH * popdist.getNumTotalReplicas() / seconds
        print(f"loss {anchors[loss].mean():.4f}   {rate:,.0f} images/s")


if __name__ == "__main__":
    main()
