"""Training steps against PyTorch: three networks, one and two processes of one thread each, in one run.

    python benchmarks/training.py [--quick] [--json FILE] [--cases mlp cnn transformer]
    python benchmarks/training.py --large [--quick] [--json FILE]

Same weights, data and optimiser (SGD with momentum 0.9); a step begins with data on the host and ends with its loss
there. In one process the contenders (ours in float32 and float16, eager PyTorch) take turns in short blocks; with
two, ``poprun-py`` and ``torchrun`` (DistributedDataParallel over gloo) are started in turns, each process with a
micro-batch of its own. A round takes the median step of each; the ratio is the median over rounds of peer / ours:
above 1 we are faster. Losses of both are compared before. ``--large``: float16 against float32, both ours, for
networks whose weights, gradients and momenta take 440 and 610 MB in float32; processor time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
from support.ending import clean_up_when_told
from support.rounds import Row, blocks, measured_in_turns, row_of_times, write_rows
from support.two_processes import Step, TwoProcesses, check_losses, print_median

import ipu_emu.popart as popart
import popdist_py
import popdist_py.popart
from ipu_emu import models

RATE, MOMENTUM = 1e-3, 0.9
HERE = Path(__file__).resolve()
#: Networks that exceed the caches.
LARGE = ["large mlp", "large transformer"]


def network(case: str, dtype: Any) -> models.Model:
    builders: dict[str, Callable[[], models.Model]] = {
        "mlp": lambda: models.mlp(batch=32, dtype=dtype),
        "cnn": lambda: models.resnet8(batch=32, dtype=dtype),
        "transformer": lambda: models.transformer(batch=8, dtype=dtype),
        "large mlp": lambda: models.mlp((784, 4096, 4096, 4096, 10), batch=16, dtype=dtype),
        "large transformer": lambda: models.transformer(
            batch=1, length=32, width=1024, heads=16, layers=4, dtype=dtype
        ),
    }
    return builders[case]()


def batch(case: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    if case == "transformer":
        return random.integers(0, 96, (8, 128)).astype(np.int32), random.integers(0, 96, 1024).astype(np.int32)
    if case == "large transformer":
        return random.integers(0, 96, (1, 32)).astype(np.int32), random.integers(0, 96, 32).astype(np.int32)
    shape = {"mlp": (32, 784), "cnn": (32, 3, 32, 32), "large mlp": (16, 784)}[case]
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 10, shape[0]).astype(np.int32)


def ours(case: str, dtype: Any, *, parallel: bool = False) -> Step:
    """A training session of one replica per process, one update per run."""
    model, opts = network(case, dtype), popart.SessionOptions()
    seed = 0
    if parallel:
        popdist_py.init()
        popdist_py.popart.configureSessionOptions(opts)
        seed = popdist_py.getInstanceIndex()
        device = popdist_py.popart.getDevice()
        opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    else:
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    optimizer = popart.SGD(
        {"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    )
    flow = popart.DataFlow(1, [model.loss])
    session = popart.TrainingSession(model.proto, flow, model.loss, optimizer, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    data, labels = batch(case, seed)
    data = data.astype(dtype) if data.dtype == np.float32 else data
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO({model.data: data, model.labels: labels}, anchors)

    def step() -> float:
        session.run(stepio)
        return float(anchors[model.loss])

    return step


def pytorch(case: str, *, parallel: bool = False) -> Step:
    from support.torch_networks.of_models import step_of

    seed = int(os.environ.get("RANK", "0")) if parallel else 0
    step: Step = step_of(
        network(case, np.float32), case, *batch(case, seed), rate=RATE, momentum=MOMENTUM, parallel=parallel
    )
    return step


def alone(case: str, *, rounds: int, seconds: float) -> list[Row]:
    """One process: ours in both types, and PyTorch."""
    steps = {"float32": ours(case, np.float32), "float16": ours(case, np.float16), "PyTorch": pytorch(case)}
    check_losses(case, steps["float32"], steps["PyTorch"], 2e-5)
    times, failed = measured_in_turns(blocks(steps, seconds), ["float32", "float16"], rounds)
    return [
        row_of_times(f"{case}, 1 process, float32", times, "float32", "PyTorch", failed=failed),
        row_of_times(f"{case}, 1 process, float16 against float32", times, "float16", "float32"),
    ]


def by_storage(case: str, *, rounds: int, seconds: float) -> list[Row]:
    """Ours in both types."""
    steps = {"float32": ours(case, np.float32), "float16": ours(case, np.float16)}
    half, single = steps["float16"](), steps["float32"]()  # the loss before the first update
    if abs(half - single) > 1e-2 * single:
        raise SystemExit(f"training.py: {case}: losses differ before the first update: {half} and {single}")
    times, _ = measured_in_turns(blocks(steps, seconds, process_time), list(steps), rounds)
    return [row_of_times(f"{case}, 1 process, float16 against float32", times, "float16", "float32")]


def together(case: str, *, rounds: int, seconds: float) -> list[Row]:
    """Two processes, started in turns; the slower process counts."""
    pair = TwoProcesses([str(HERE), "--seconds", str(seconds), "--cases", case, "--worker"], port=29533)
    return [pair.row(f"{case}, 2 processes, float32", rounds)]


def worker(case: str, kind: str, seconds: float) -> None:
    """One of two processes: prints its median step."""
    step = ours(case, np.float32, parallel=True) if kind == "ours" else pytorch(case, parallel=True)
    steps = max(5, int(seconds / {"mlp": 0.003, "cnn": 0.06, "transformer": 0.2}[case]))
    print_median(step, steps, warm_up=5)


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps against PyTorch, one thread per process.")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer and shorter rounds, two processes for the first network only; takes less than 50 s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", default=["mlp", "cnn", "transformer"], help="networks to measure")
    parser.add_argument("--large", action="store_true", help=f"float16 against float32: {', '.join(LARGE)}")
    parser.add_argument("--worker", choices=["ours", "pytorch"], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    seconds = args.seconds or (0.2 if args.quick else 1.0)
    if args.worker:
        worker(args.cases[0], args.worker, seconds)
        return
    clean_up_when_told()
    rows = []
    for case in LARGE if args.large else args.cases:
        measure = by_storage if args.large else alone
        results = measure(case, rounds=2 if args.quick else 9, seconds=seconds)
        if not args.large and (not args.quick or case == args.cases[0]):  # starting processes takes longest
            results += together(case, rounds=1 if args.quick else 5, seconds=2 * seconds)
        for line in results:
            print(line, flush=True)
        rows += results
    write_rows(args.json, rows)


if __name__ == "__main__":
    main()
