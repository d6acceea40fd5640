"""Training step of the digits example against eager PyTorch, one thread each, in one run.

    python benchmarks/training.py [--quick] [--json FILE]

The same network, weights, batches and optimiser (SGD with momentum; 2 micro-batches of 32 per update). The contenders
take turns in short blocks, so that all meet the same disturbance; a round takes the median step of each block, the
ratio is the median over rounds of peer / ours: above 1 we are faster. The losses of both are compared before timing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

import ipu_emu.popart as popart

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits.py"
MICRO_BATCH, ACCUMULATION = 32, 2
RATE, MOMENTUM = 0.2, 0.9

#: Makes one update and returns the mean loss of its micro-batches.
Step = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One case; ``peers`` and ``ours`` in ``unit``, less is better; ``ratio`` = fastest peer / ours."""

    case: str
    unit: str
    ours: float
    peers: dict[str, float]
    ratio: float

    def __str__(self) -> str:
        peers = ", ".join(f"{name} {value:.0f}" for name, value in self.peers.items())
        return f"{self.case:38} ours {self.ours:6.0f} {self.unit}   {peers} {self.unit}   ratio {self.ratio:.2f}"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def batch(example: Any) -> tuple[np.ndarray, np.ndarray]:
    """The first batch of training images, [A, micro-batch, ...], and its labels."""
    images, labels = example.Digits.load(0, np.float32).train
    count = ACCUMULATION * MICRO_BATCH
    return (
        images[:count].reshape(ACCUMULATION, MICRO_BATCH, 1, 8, 8),
        labels[:count].reshape(ACCUMULATION, MICRO_BATCH),
    )


def ours(example: Any, dtype: Any) -> Step:
    """A training session of one replica, one update per run."""
    model, ids = example.network(example.first_weights(0, dtype), MICRO_BATCH)
    opts = popart.SessionOptions()
    opts.enableGradientAccumulation, opts.accumulationFactor = True, ACCUMULATION
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    optimizer = popart.SGD(
        {"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    )
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    flow = popart.DataFlow(1, [ids["loss"]])
    session = popart.TrainingSession(model, flow, ids["loss"], optimizer, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    anchors, (images, labels) = session.initAnchorArrays(), batch(example)
    stepio = popart.PyStepIO({ids["images"]: images.astype(dtype), ids["labels"]: labels}, anchors)

    def step() -> float:
        session.run(stepio)
        return float(anchors[ids["loss"]].mean())

    return step


def pytorch(example: Any) -> Step:
    """Eager PyTorch on one thread."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    weights = example.first_weights(0, np.float32)
    w = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    optimizer = torch.optim.SGD(w.values(), lr=RATE, momentum=MOMENTUM)
    images, labels = batch(example)
    parts = [(torch.tensor(x), torch.tensor(t).long()) for x, t in zip(images, labels, strict=True)]

    def loss_of(x: Any, t: Any) -> Any:
        for layer in ("conv1", "conv2"):
            x = functional.conv2d(x, w[f"{layer}_weights"], w[f"{layer}_bias"], padding=1)
            x = functional.avg_pool2d(torch.tanh(x), 2)
        return functional.cross_entropy(torch.addmm(w["dense_bias"], x.flatten(1), w["dense_weights"]), t)

    def step() -> float:
        optimizer.zero_grad()
        total = 0.0
        for x, t in parts:
            loss = loss_of(x, t)
            (loss / ACCUMULATION).backward()
            total += float(loss.detach())
        optimizer.step()
        return total / ACCUMULATION

    return step


def check(name: str, one: Step, other: Step, tolerance: float) -> None:
    """Raise SystemExit unless both compute the same losses for a few updates."""
    for update in range(5):
        a, b = one(), other()
        if abs(a - b) > tolerance:
            raise SystemExit(f"training.py: {name}: losses differ in update {update}: {a} and {b}")


def measure(contenders: dict[str, Step], *, rounds: int, steps: int) -> dict[str, list[float]]:
    """Microseconds per step of every contender in every round, in alternating order."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        order = list(contenders) if number % 2 else list(reversed(contenders))
        for name in order:
            samples = []
            for _ in range(steps):
                start = perf_counter()
                contenders[name]()
                samples.append(1e6 * (perf_counter() - start))
            if number:  # the first round warms up
                times[name].append(statistics.median(samples))
    return times


def row(case: str, times: dict[str, list[float]], mine: str, peers: list[str]) -> Row:
    ratios = [min(times[peer][i] for peer in peers) / value for i, value in enumerate(times[mine])]
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Row(case, "us", medians[mine], {peer: medians[peer] for peer in peers}, statistics.median(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description="Training step against eager PyTorch, one thread.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    args = parser.parse_args()
    example = load_example()
    contenders = {"float32": ours(example, np.float32), "float16": ours(example, np.float16)}
    peers = []
    if importlib.util.find_spec("torch"):
        contenders["PyTorch"] = pytorch(example)
        check("ours and PyTorch", contenders["float32"], contenders["PyTorch"], 1e-4)
        peers = ["PyTorch"]
    else:
        print("PyTorch is not installed (pip install torch==2.13.0); only our own times are shown")
    times = measure(contenders, rounds=5 if args.quick else 25, steps=20 if args.quick else 60)
    rows = [row("digits step, float16 against float32", times, "float16", ["float32"])]
    if peers:
        rows.insert(0, row("digits step, float32", times, "float32", peers))
    for line in rows:
        print(line)
    if args.json:
        args.json.write_text(json.dumps([asdict(line) for line in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
