"""Cost of traces: a step of the digits example with and without a trace, and a span, against torch.profiler.

    python benchmarks/trace.py [--quick] [--json FILE]

A round starts one process for each contender: the step without a trace and with one, and the same network in eager
PyTorch without and with torch.profiler. What is compared is the time that recording adds to a step, in per cent, and
the time of one user's span (``trace.span``, ``record_function``). Ratios above 1: ours costs less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
from support.rounds import Row, in_turns, write_rows

HERE = Path(__file__).resolve()
IMAGES = 30
CONTENDERS = ("ours", "ours traced", "PyTorch", "PyTorch profiled")


def our_step() -> Any:
    """One update of the network of examples/digits.py, from arrays on the host to the loss there."""
    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    import digits

    import ipu_emu.popart as popart

    weights = digits.first_weights(0, np.float32)
    proto, ids = digits.network(weights, IMAGES)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    flow = popart.DataFlow(1, [ids["loss"]])
    session = popart.TrainingSession(proto, flow, ids["loss"], popart.ConstSGD(0.01), device)
    session.prepareDevice()
    session.weightsFromHost()
    random = np.random.default_rng(0)
    data = {
        ids["images"]: random.standard_normal((IMAGES, 1, 8, 8)).astype(np.float32),
        ids["labels"]: random.integers(0, 10, IMAGES).astype(np.int32),
    }
    stepio = popart.PyStepIO(data, session.initAnchorArrays())
    return lambda: session.run(stepio)


def their_step() -> Any:
    """The same network in eager PyTorch."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss()
    x, y = torch.randn(IMAGES, 1, 8, 8), torch.randint(0, 10, (IMAGES,))

    def step() -> float:
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        return float(value)

    return step


def measured(step: Any, seconds: float) -> float:
    """Median microseconds of a step."""
    for _ in range(50):
        step()
    times, end = [], perf_counter() + seconds
    while perf_counter() < end:
        begin = perf_counter_ns()
        step()
        times.append(perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def worker(contender: str, seconds: float) -> None:
    """Print the microseconds of a step, and of a span where spans are recorded."""
    span = 0.0
    if contender.startswith("ours"):
        from ipu_emu import trace

        step = measured(our_step(), seconds)
        span = span_cost(lambda: trace.span("mark"))
    elif contender == "PyTorch":
        step = measured(their_step(), seconds)
    else:
        from torch.profiler import ProfilerActivity, profile, record_function

        own = their_step()
        with profile(activities=[ProfilerActivity.CPU]):
            step = measured(own, min(seconds, 1.0))  # it keeps everything in memory
            span = span_cost(lambda: record_function("mark"))
    print(json.dumps([step, span]))


def span_cost(make: Any, count: int = 20_000) -> float:
    """Microseconds of an empty span, without those of the loop; the least of five rounds."""

    def loop(body: bool) -> float:
        begin = perf_counter_ns()
        for _ in range(count):
            if body:
                with make():
                    pass
        return (perf_counter_ns() - begin) / count / 1e3

    return min(loop(True) - loop(False) for _ in range(5))


def run(contender: str, seconds: float) -> tuple[float, float]:
    """Start a process for a contender."""
    command = [sys.executable, str(HERE), "--worker", contender, "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "IPU_EMU_TRACE"}
        if contender == "ours traced":
            environment["IPU_EMU_TRACE"] = folder
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    step, span = json.loads(said.splitlines()[-1])
    return step, span


def main() -> None:
    parser = argparse.ArgumentParser(description="What recording costs.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; takes less than 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--worker", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    seconds = args.seconds or (0.4 if args.quick else 2.0)
    if args.worker:
        worker(args.worker, seconds)
        return
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    for name in in_turns(CONTENDERS, 3 if args.quick else 9):
        try:
            found[name].append(run(name, seconds))
        except subprocess.CalledProcessError as error:
            print(f"{name} failed: {error.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    rows = table(found)
    for line in rows:
        print(line, flush=True)
    write_rows(args.json, rows)


def table(found: dict[str, list[tuple[float, float]]]) -> list[Row]:
    medians = {name: statistics.median(step for step, _ in rounds) for name, rounds in found.items() if rounds}
    spans = {name: statistics.median(span for _, span in rounds) for name, rounds in found.items() if rounds}
    rows = []
    if {"ours", "ours traced"} <= medians.keys():
        rows.append(Row("digits step", "us", medians["ours"], {}, 1.0))
        added = 100 * statistics.median(
            b[0] / a[0] - 1 for a, b in zip(found["ours"], found["ours traced"], strict=False)
        )
        peers = {}
        if {"PyTorch", "PyTorch profiled"} <= medians.keys():
            rounds = zip(found["PyTorch"], found["PyTorch profiled"], strict=False)
            peers = {"torch.profiler": 100 * statistics.median(b[0] / a[0] - 1 for a, b in rounds)}
        ratio = peers["torch.profiler"] / max(added, 0.1) if peers else 1.0
        rows.append(Row("recording a digits step", "% of a step", added, peers, ratio))
    if "ours traced" in spans:
        peers = {"torch.profiler": spans["PyTorch profiled"]} if "PyTorch profiled" in spans else {}
        ratio = peers["torch.profiler"] / spans["ours traced"] if peers else 1.0
        rows.append(Row("a user's span", "us", spans["ours traced"], peers, ratio))
        rows.append(Row("a user's span, nothing recorded", "us", spans["ours"], {}, 1.0))
    return rows


if __name__ == "__main__":
    main()
