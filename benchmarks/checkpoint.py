"""How much saving 400 MB slows down training steps, against PyTorch's ways to save, in one run.

    python benchmarks/checkpoint.py [--quick] [--json FILE]

Each contender trains a network of 50 million weights with momentum (400 MB of state) and saves while it trains. A
number is the time of the steps from the call that saves until the state is on the disk, relative to the time of as
many steps without saving: 0 % is no slow-down. PyTorch: ``torch.save`` and fsync between two steps, and
``async_save`` of torch.distributed.checkpoint. All train on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
import torch
import torch.distributed
from support.ending import clean_up_when_told
from support.rounds import Row
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import async_save

from ipu_emu import popart
from ipu_emu.hostio.checkpoint import Checkpoints

WIDTH, LAYERS, BATCH = 4096, 3, 32
RATE, MOMENTUM = 1e-4, 0.9

Step = Callable[[], None]
#: Starts saving; returns a function that tells whether the state is on the disk.
Save = Callable[[], Callable[[], bool]]


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [(random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5) for _ in range(LAYERS)]


@contextmanager
def ours(folder: Path) -> Iterator[tuple[Step, Save]]:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH, WIDTH]))
    y = x
    for value in weights():
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(value)])])
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Mean)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.SGD({"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = {x: np.random.default_rng(1).standard_normal((BATCH, WIDTH), np.float32)}
    count = 0
    with Checkpoints(folder, keep=1) as checkpoints:

        def save() -> Callable[[], bool]:
            nonlocal count
            count += 1
            checkpoints.save(session, count)
            return lambda: not checkpoints.writing

        yield lambda: session.run(popart.PyStepIO(data, anchors)), save
    session.close()


class Torch:
    """The same network in eager PyTorch."""

    def __init__(self) -> None:
        self.layers = [torch.nn.Parameter(torch.tensor(value)) for value in weights()]
        self.optimizer = torch.optim.SGD(self.layers, RATE, MOMENTUM)
        self.data = torch.randn(BATCH, WIDTH)

    def step(self) -> None:
        y = self.data
        for layer in self.layers:
            y = torch.tanh(y @ layer)
        y.abs().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        momenta = [self.optimizer.state[layer]["momentum_buffer"] for layer in self.layers]
        return {f"w{i}": w.detach() for i, w in enumerate(self.layers)} | {f"m{i}": m for i, m in enumerate(momenta)}


@contextmanager
def torch_save(folder: Path) -> Iterator[tuple[Step, Save]]:
    net = Torch()

    def save() -> Callable[[], bool]:
        with (folder / "state").open("wb") as file:
            torch.save(net.state(), file)
            file.flush()
            os.fsync(file.fileno())
        return lambda: True

    yield net.step, save


@contextmanager
def torch_async(folder: Path) -> Iterator[tuple[Step, Save]]:
    net = Torch()
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)

    def save() -> Callable[[], bool]:
        writer = FileSystemWriter(folder / "async", overwrite=True)
        future = async_save(net.state(), storage_writer=writer)
        return future.done

    yield net.step, save
    torch.distributed.destroy_process_group()


CONTENDERS = {"ours": ours, "async_save": torch_async, "torch.save": torch_save}


def timed(step: Step) -> float:
    begin = perf_counter()
    step()
    return perf_counter() - begin


def slow_down(step: Step, save: Save, *, saves: int, plain_steps: int) -> tuple[float, float]:
    """(slow-down of the steps while the state is written in percent, seconds of writing), medians over ``saves``."""
    for _ in range(3):
        step()
    written = save()  # allocates memory that later saves reuse
    while not written():
        step()
    percents, seconds = [], []
    for _ in range(saves):
        plain = statistics.median(timed(step) for _ in range(plain_steps))
        begin, steps = perf_counter(), 0
        written = save()
        while True:
            step()
            steps += 1
            if written():
                break
        spent = perf_counter() - begin
        percents.append(100 * (spent / (steps * plain) - 1))
        seconds.append(spent)
    return statistics.median(percents), statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one save each instead of five; takes less than 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the row here")
    parser.add_argument("--folder", type=Path, help="folder for the states (default: the folder for temporary files)")
    options = parser.parse_args()
    clean_up_when_told()
    torch.set_num_threads(1)
    percents = {}
    for name, contender in CONTENDERS.items():
        with (
            tempfile.TemporaryDirectory(
                prefix="checkpoint-", dir=options.folder, ignore_cleanup_errors=True
            ) as folder,
            contender(Path(folder)) as (step, save),
        ):
            percent, seconds = slow_down(
                step, save, saves=1 if options.quick else 5, plain_steps=3 if options.quick else 8
            )
        percents[name] = percent
        print(
            f"{name:12} steps are {percent:6.1f} % slower while 400 MB are written, for {seconds:.2f} s", flush=True
        )
    mine, peers = percents.pop("ours"), percents
    ratio = min(peers.values()) / max(mine, 0.1)
    row = Row("checkpoint of 400 MB while training: slow-down of the steps", "%", mine, peers, ratio)
    if options.json:
        options.json.write_text(json.dumps([asdict(row)], indent=1))


if __name__ == "__main__":
    main()
