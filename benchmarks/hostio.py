"""Feeds against PyTorch's DataLoader, a memcpy, and synthetic data, in one run.

    python benchmarks/hostio.py [--quick] [--json FILE] [--cases images bandwidth overlap overhead]
    python benchmarks/hostio.py --endurance

Contenders take turns in rounds; a number is the median over rounds, the ratio the median of the ratios of the rounds:
above 1 we are faster. All use two workers; batches are compared before they are timed.

- images: crop, flip and normalise 256 x 256 x 3 bytes to 224 x 224 x 3 float32, batches of 32
- bandwidth: batches of 19 MB from memory through a worker to the consumer, no preparation
- overlap: training steps with data whose preparation takes 60 % of a step, against data made on the device
- overhead: micro-batches of 1 KiB

``--endurance`` runs 100,000 steps of a session for each kind of worker and prints memory and descriptors on the way.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import torch
import torch.utils.data as torch_data

from ipu_emu import models, popart
from ipu_emu.hostio import Feed
from ipu_emu.hostio.transforms import Images

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WORKERS, BATCH = 2, 32

#: Makes an endless iterator over batches.
Make = Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Row:
    """One case: ours and the peers in ``unit``; ``ratio`` above 1 means that we are better than the best peer."""

    case: str
    unit: str
    ours: float
    peers: dict[str, float]
    ratio: float

    def __str__(self) -> str:
        peers = ", ".join(f"{name} {value:.4g}" for name, value in self.peers.items())
        return f"{self.case:58} ours {self.ours:9.4g} {self.unit:10} {peers:46} ratio {self.ratio:.2f}"


def rate(batches: Iterator[Any], seconds: float) -> float:
    """Batches per second, after a few to warm up."""
    for _ in islice(batches, 8):
        pass
    count, begin = 0, perf_counter()
    while perf_counter() - begin < seconds:
        next(batches)
        count += 1
    return count / (perf_counter() - begin)


def rounds_of(contenders: dict[str, Make], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Batches per second of each contender in each round."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders) if number % 2 else list(reversed(contenders)):
            rates[name].append(rate(contenders[name](), seconds))
    return rates


def row(case: str, unit: str, rates: dict[str, list[float]], mine: str, scale: float) -> Row:
    medians = {name: statistics.median(values) * scale for name, values in rates.items()}
    peers = {name: value for name, value in medians.items() if not name.startswith("ours")}
    best = max(peers, key=lambda name: peers[name])
    ratio = statistics.median(a / b for a, b in zip(rates[mine], rates[best], strict=True))
    return Row(case, unit, medians[mine], peers, ratio)


# Images


def place(random: np.random.Generator) -> tuple[int, int, bool]:
    return int(random.integers(33)), int(random.integers(33)), bool(random.integers(2))


def with_numpy(sample: Any, random: np.random.Generator) -> Any:
    """The same preparation as a user would write it with numpy."""
    top, left, flip = place(random)
    image = sample[top : top + 224, left : left + 224]
    image = image[:, ::-1] if flip else image
    return (image.astype(np.float32) / np.float32(255) - np.float32(MEAN)) / np.float32(STD)


class TorchImages(torch_data.Dataset[Any]):
    """The same preparation with torch operators, or with numpy."""

    def __init__(self, images: np.ndarray, *, numpy: bool) -> None:
        self.images, self.numpy = images, numpy
        self.random = np.random.default_rng(0)
        self.mean, self.std = torch.tensor(MEAN), torch.tensor(STD)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, row: int) -> Any:
        sample = self.images[row % len(self.images)]
        if self.numpy:
            return torch.from_numpy(with_numpy(sample, self.random))
        top, left, flip = place(self.random)
        image = torch.from_numpy(sample[top : top + 224, left : left + 224]).float()
        image = image.flip(1) if flip else image
        return image.div_(255).sub_(self.mean).div_(self.std)


def loader(data: Any, batch: int) -> Iterator[Any]:
    return iter(torch_data.DataLoader(data, batch_size=batch, num_workers=WORKERS, prefetch_factor=4))


def images(*, rounds: int, seconds: float) -> list[Row]:
    data = np.random.default_rng(0).integers(0, 256, (256, 256, 256, 3)).astype(np.uint8)
    compiled = Images(crop=(224, 224), flip=True, mean=MEAN, std=STD)
    fixed = Images(crop=(224, 224), random=False, mean=MEAN, std=STD)
    centre = (data[:BATCH, 16:240, 16:240] / 255 - MEAN) / STD
    np.testing.assert_allclose(next(Feed(data, micro_batch=BATCH, prepare=fixed)), centre, atol=1e-6)

    def ours(prepare: Any) -> Feed:
        return Feed(data, micro_batch=BATCH, prepare=prepare, shuffle=True, epochs=None, workers=WORKERS)

    contenders: dict[str, Make] = {
        "ours": lambda: ours(compiled),
        "ours, the numpy function": lambda: ours(with_numpy),
        "DataLoader, torch": lambda: loader(TorchImages(data, numpy=False), BATCH),
        "DataLoader, numpy": lambda: loader(TorchImages(data, numpy=True), BATCH),
    }
    torch.set_num_threads(1)
    rates = rounds_of(contenders, rounds=rounds, seconds=seconds)
    case = "images 224x224x3, batch 32, 2 workers"
    return [
        row(f"{case}, compiled transforms", "samples/s", rates, "ours", BATCH),
        row(f"{case}, numpy function", "samples/s", rates, "ours, the numpy function", BATCH),
    ]


# Hand-over


class Samples(torch_data.Dataset[Any]):
    """Samples that are in memory; DataLoader puts a batch of them together straight in shared memory."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = torch.from_numpy(data)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, row: int) -> Any:
        return self.data[row % len(self.data)]


def copies(data: np.ndarray, batch: int) -> Iterator[Any]:
    """A loop that copies each batch."""
    out = np.empty_like(data[:batch])
    while True:
        for at in range(0, len(data), batch):
            np.copyto(out, data[at : at + batch])
            yield out


def bandwidth(*, rounds: int, seconds: float) -> list[Row]:
    data = np.random.default_rng(0).standard_normal((8 * BATCH, 224, 224, 3), np.float32)
    how: dict[str, Any] = {"micro_batch": BATCH, "epochs": None, "workers": WORKERS}
    contenders: dict[str, Make] = {
        "ours": lambda: Feed(data, processes=True, **how),
        "DataLoader": lambda: loader(Samples(data), BATCH),
        "memcpy": lambda: copies(data, BATCH),
    }
    rates = rounds_of(contenders, rounds=rounds, seconds=seconds)
    gigabytes = data[:BATCH].nbytes / 1e9
    case = "hand-over of 19 MB batches, 2 processes"
    return [
        row(f"{case}, against {peer}", "GB/s", {name: rates[name] for name in ("ours", peer)}, "ours", gigabytes)
        for peer in ("DataLoader", "memcpy")
    ]


def overhead(*, rounds: int, seconds: float) -> list[Row]:
    data = np.random.default_rng(0).standard_normal((100_000, 256), np.float32)
    return [
        per_batch(f"micro-batches of 1 KiB, 2 {kind}", data, processes, rounds, seconds)
        for kind, processes in (("processes", True), ("threads", False))
    ]


def per_batch(case: str, data: np.ndarray, processes: bool, rounds: int, seconds: float) -> Row:
    """Microseconds per batch: less is better."""
    contenders: dict[str, Make] = {
        "ours": lambda: Feed(data, micro_batch=1, epochs=None, workers=WORKERS, processes=processes),
        "DataLoader": lambda: loader(Samples(data), 1),
    }
    found = row(case, "us", rounds_of(contenders, rounds=rounds, seconds=seconds), "ours", 1)
    return Row(case, "us", 1e6 / found.ours, {name: 1e6 / value for name, value in found.peers.items()}, found.ratio)


# Overlap


def session(synthetic: bool) -> tuple[popart.TrainingSession, models.Model]:
    model, opts = models.resnet8(batch=BATCH), popart.SessionOptions()
    if synthetic:
        opts.syntheticDataMode = popart.SyntheticDataMode.RandomNormal
    made = popart.TrainingSession(
        model.proto,
        popart.DataFlow(1, [model.loss]),
        model.loss,
        popart.ConstSGD(1e-3),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
        userOptions=opts,
    )
    made.prepareDevice()
    made.weightsFromHost()
    return made, model


def work(sample: Any, times: int) -> Any:
    """Preparation in Python that costs as much as is asked for."""
    image, label = sample
    for _ in range(times):
        image = np.tanh(image)
    return image, label


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    samples, end = [], perf_counter() + seconds
    while perf_counter() < end or len(samples) < 3:
        begin = perf_counter()
        call()
        samples.append(1e3 * (perf_counter() - begin))
    return statistics.median(samples)


def overlap(*, rounds: int, seconds: float) -> list[Row]:
    (real, model), (synthetic, _) = session(False), session(True)
    random = np.random.default_rng(0)
    data = (random.standard_normal((1024, 3, 32, 32), np.float32), random.integers(0, 10, 1024).astype(np.int32))
    anchors = real.initAnchorArrays()
    nothing = popart.PyStepIO({}, synthetic.initAnchorArrays())
    step = milliseconds(lambda: synthetic.run(nothing), seconds)
    one = milliseconds(lambda: work((data[0][0], 0), 100), seconds / 4) / 100
    times = round(0.6 * step / BATCH / one)
    feed = Feed(
        data, micro_batch=BATCH, prepare=lambda sample: work(sample, times), shuffle=True, epochs=None, workers=1
    )

    def with_data() -> Iterator[Any]:
        for images, labels in feed:
            yield real.run(popart.PyStepIO({model.data: images, model.labels: labels}, anchors))

    def without() -> Iterator[Any]:
        while True:
            yield synthetic.run(nothing)

    rates = rounds_of({"ours": with_data, "synthetic data": without}, rounds=rounds, seconds=seconds)
    feed.close()
    return [row(f"training, preparation 60 % of a step of {step:.0f} ms", "samples/s", rates, "ours", BATCH)]


# Endurance


def endurance(steps: int = 100_000) -> None:
    """Resident memory and open descriptors of a session with its feed: both have to stay as they are."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 16])
    y = builder.aiOnnx.relu([x])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors, data = session.initAnchorArrays(), np.random.default_rng(0).standard_normal((1000, 16), np.float32)
    kinds: list[tuple[str, Any, Any]] = [("threads", None, False), ("processes", lambda sample: sample, True)]
    for kind, prepare, processes in kinds:
        with Feed({x: data}, micro_batch=4, prepare=prepare, epochs=None, shuffle=True, processes=processes) as feed:
            stepio, seen = popart.FeedStepIO(feed, anchors), psutil.Process()
            for step in range(steps):
                session.run(stepio)
                if (step + 1) % (steps // 10) == 0:
                    rows = [seen, *seen.children()]
                    memory = sum(process.memory_full_info().uss for process in rows) / 1e6
                    open_now = sum(process.num_fds() for process in rows)
                    print(f"{kind:9} step {step + 1:7,}: {memory:7.1f} MB, {open_now} descriptors", flush=True)


CASES: dict[str, Callable[..., list[Row]]] = {
    "images": images,
    "bandwidth": bandwidth,
    "overlap": overlap,
    "overhead": overhead,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="what to measure")
    parser.add_argument("--endurance", action="store_true", help="run 100,000 steps and watch memory instead")
    options = parser.parse_args()
    if options.endurance:
        endurance()
        return
    rows: list[Row] = []
    for case in options.cases:
        found = CASES[case](rounds=3 if options.quick else 5, seconds=0.7 if options.quick else 1.5)
        rows += found
        print(*found, sep="\n", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
