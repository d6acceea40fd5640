"""Feeds against PyTorch's DataLoader, a memcpy, and synthetic data, in one run.

    python benchmarks/hostio.py [--quick] [--json FILE] [--cases images bandwidth overlap tiles staging overhead]
    python benchmarks/hostio.py --endurance

All use two workers; batches are compared before they are timed.

- images: crop, flip and normalise 256 x 256 x 3 bytes to 224 x 224 x 3 float32, batches of 32
- bandwidth: batches of 19 MB from memory through a worker to the consumer, no preparation
- overlap: training steps with data whose preparation takes 60 % of a step, against data made on the device
- tiles: a callback that waits 60 % as long as a micro-batch computes, called while one computes, against just in time
- staging: the same on average, but unevenly: with places in Streaming Memory, against I/O tiles and just in time
- overhead: micro-batches of 1 KiB

``--endurance`` runs 100,000 steps of a session for each kind of worker and prints memory and descriptors on the way.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
import torch
import torch.utils.data as torch_data
from support.ending import clean_up_when_told
from support.hostio_sessions import endurance, io_tiles, overlap, staging
from support.rounds import Make, Row, rounds_of, row

from ipu_emu.hostio import Feed
from ipu_emu.hostio.data.image_transforms import Images

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WORKERS, BATCH = 2, 32
NUMPY = "ours, the numpy function"

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
        NUMPY: lambda: ours(with_numpy),
        "DataLoader, torch": lambda: loader(TorchImages(data, numpy=False), BATCH),
        "DataLoader, numpy": lambda: loader(TorchImages(data, numpy=True), BATCH),
    }
    torch.set_num_threads(1)
    rates = rounds_of(contenders, rounds=rounds, seconds=seconds)
    case = "images 224x224x3, batch 32, 2 workers"
    return [
        row(f"{case}, compiled transforms", "samples/s", rates, "ours", BATCH),
        *(
            row(f"{case}, numpy function, against {peer}", "samples/s", among(rates, peer), NUMPY, BATCH)
            for peer in ("DataLoader, numpy", "DataLoader, torch")
        ),
    ]


def among(rates: dict[str, Any], peer: str) -> dict[str, Any]:
    return {name: rates[name] for name in (NUMPY, peer)}


# Hand-over


class Samples(torch_data.Dataset[Any]):
    """Samples in memory; DataLoader collates a batch directly in shared memory."""

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
    rates = row(case, "us", rounds_of(contenders, rounds=rounds, seconds=seconds), "ours", 1)
    return Row(case, "us", 1e6 / rates.ours, {name: 1e6 / value for name, value in rates.peers.items()}, rates.ratio)


CASES: dict[str, Callable[..., list[Row]]] = {
    "images": images,
    "bandwidth": bandwidth,
    "overlap": overlap,
    "tiles": io_tiles,
    "staging": staging,
    "overhead": overhead,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; takes less than 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="what to measure")
    parser.add_argument("--endurance", action="store_true", help="run 100,000 steps and watch memory instead")
    options = parser.parse_args()
    clean_up_when_told()
    if options.endurance:
        endurance()
        return
    rows: list[Row] = []
    for case in options.cases:
        results = CASES[case](rounds=2 if options.quick else 5, seconds=0.4 if options.quick else 1.5)
        rows += results
        print(*results, sep="\n", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
