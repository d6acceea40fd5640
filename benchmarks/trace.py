"""Cost of traces: a step of the digits example with and without a trace, and a span, against torch.profiler.

    python benchmarks/trace.py [--quick] [--json FILE]

A step is a weight update of examples/digits.py with its default settings: 2 micro-batches of 32 images, in runs of an
epoch. A round starts a process for ours, and one for the same network in eager PyTorch; each takes turns between
blocks of steps that are recorded and blocks that are not. What is compared is the median time that recording adds to
a block, in per cent, in wall time and in processor time of the thread, and the time of one user's span
(``trace.span``, ``record_function``): of the thread that used its name first, of another one, inside a span of its
own name, and with a category. Ratios above 1: ours costs less. The command fails if ours costs more than its bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from time import perf_counter, perf_counter_ns, thread_time
from typing import Any

from support.extras import need

need("torch", extra="bench")

import numpy as np
from support.rounds import Row, in_turns, write_rows

HERE = Path(__file__).resolve()
CONTENDERS = ("ours", "PyTorch")
#: Blocks before those that count, in which kernels are loaded and short instructions measured.
WARM_UP = 4

#: The cases with a bound, in the unit of their row: what recording may add to a step, and a span without arguments.
BOUNDS = {
    "recording a digits step": 2.0,
    "recording a digits step, processor time": 2.0,
    "a user's span": 0.5,
    "a user's span, in another thread": 0.5,
    "a user's span, inside one of its name": 0.5,
    "a user's span, with a category": 0.5,
}

#: Seconds of a block: wall time, and processor time of the thread.
Times = tuple[float, float]
#: Called with a span and a number of repetitions; returns nanoseconds.
Loop = Callable[[Any, int], int]


@dataclass(frozen=True)
class Cost:
    """Microseconds of a step without a trace, what recording adds in per cent, and microseconds of spans."""

    step: float
    added: float
    added_processor_time: float
    span: float
    span_in_another_thread: float
    span_inside_its_own: float
    span_with_category: float
    span_with_an_argument: float
    span_unrecorded: float


def ours(seconds: float) -> Cost:
    """Epochs of examples/digits.py with its default settings, in a session that records and in one that does not."""
    from ipu_emu import trace

    trace.stop()
    plain, steps = our_epoch()
    unrecorded = span_cost(trace.span)
    with tempfile.TemporaryDirectory() as folder:
        trace.start(folder)
        recorded, _ = our_epoch()
        times = compared(lambda: timed(plain), lambda: timed(recorded), seconds)
        return Cost(1e6 * times[0] / steps, *times[1:], *span_costs(trace.span, with_category), unrecorded)


def our_epoch() -> tuple[Callable[[], None], int]:
    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    import digits

    import ipu_emu.popart as popart

    data, place = digits.Digits.load(0, np.float32), digits.Place.find(64)
    settings = argparse.Namespace(epochs=30, half=False, seed=0)
    training = digits.Training(data, place, digits.first_weights(0, np.float32), settings)
    order = np.arange(training.steps * place.batch).reshape(training.steps, digits.ACCUMULATION, 1, -1)
    inputs = {training.ids[name]: part[order] for name, part in zip(("images", "labels"), data.train, strict=True)}
    stepio = popart.PyStepIO(inputs, training.anchors)
    return lambda: training.session.run(stepio), training.steps


def theirs(seconds: float, steps: int = 22) -> Cost:
    """The same network, micro-batches and optimiser in eager PyTorch, with torch.profiler and without."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss()
    x, y = torch.randn(2, 32, 1, 8, 8), torch.randint(0, 10, (2, 32))

    def block() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            for images, labels in zip(x, y, strict=True):
                value = loss(net(images), labels) / 2
                value.backward()
                float(value)
            optimizer.step()

    def profiled() -> Times:
        with profile(activities=[ProfilerActivity.CPU]):
            return timed(block)

    times = compared(lambda: timed(block), profiled, seconds)
    unrecorded = span_cost(record_function)
    with profile(activities=[ProfilerActivity.CPU]):
        return Cost(1e6 * times[0] / steps, *times[1:], *span_costs(record_function, marks), unrecorded)


def timed(block: Callable[[], None]) -> Times:
    wall, processor = perf_counter(), thread_time()
    block()
    return perf_counter() - wall, thread_time() - processor


def compared(plain: Callable[[], Times], recorded: Callable[[], Times], seconds: float) -> tuple[float, float, float]:
    """Median seconds of a plain block, and the median per cent that recording adds: wall and processor time."""
    pairs: list[tuple[Times, Times]] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(pairs) < 2 * WARM_UP:
        if len(pairs) % 2:
            after = recorded()
            pairs.append((plain(), after))
        else:
            before = plain()
            pairs.append((before, recorded()))
    pairs = pairs[WARM_UP:]
    added = [100 * (statistics.median(b[clock] / a[clock] for a, b in pairs) - 1) for clock in range(2)]
    return statistics.median(a[0] for a, _ in pairs), added[0], added[1]


def span_costs(span: Any, categorised: Loop) -> tuple[float, float, float, float, float]:
    """Microseconds of a span: plain, in another thread, inside one of its name, with category, with an argument."""
    plain = span_cost(span)
    with ThreadPoolExecutor(1) as other:
        elsewhere = other.submit(span_cost, span).result()
    with span("mark"):
        inside = span_cost(span)
    return plain, elsewhere, inside, span_cost(span, categorised), span_cost(span, with_argument)


def span_cost(span: Any, loop: Loop | None = None, count: int = 10_000) -> float:
    """Microseconds of an empty span, without those of the loop; of both the least of 15 rounds."""
    rounds = [((loop or marks)(span, count), empty(count)) for _ in range(15)]
    return (min(spans for spans, _ in rounds) - min(loops for _, loops in rounds)) / count / 1e3


def marks(span: Any, count: int) -> int:
    begin = perf_counter_ns()
    for _ in range(count):
        with span("mark"):
            pass
    return perf_counter_ns() - begin


def with_category(span: Any, count: int) -> int:
    from ipu_emu.trace import Category

    category, begin = Category.DATA, perf_counter_ns()
    for _ in range(count):
        with span("mark", category):
            pass
    return perf_counter_ns() - begin


def with_argument(span: Any, count: int) -> int:
    begin = perf_counter_ns()
    for _ in range(count):
        with span("mark", args="3"):
            pass
    return perf_counter_ns() - begin


def empty(count: int) -> int:
    begin = perf_counter_ns()
    for _ in range(count):
        pass
    return perf_counter_ns() - begin


def run(contender: str, seconds: float) -> Cost:
    """Start a process for a contender."""
    command = [sys.executable, str(HERE), "--worker", contender, "--seconds", str(seconds)]
    environment = {name: value for name, value in os.environ.items() if name != "IPU_EMU_TRACE"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return Cost(**json.loads(said.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="What recording costs.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; takes less than 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--worker", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    seconds = args.seconds or (3.0 if args.quick else 10.0)
    if args.worker:
        print(json.dumps(asdict((ours if args.worker == "ours" else theirs)(seconds))))
        return
    by_name: dict[str, list[Cost]] = {name: [] for name in CONTENDERS}
    for name in in_turns(CONTENDERS, 3 if args.quick else 9):
        try:
            by_name[name].append(run(name, seconds))
        except subprocess.CalledProcessError as error:
            print(f"{name} failed: {error.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    rows = table(by_name)
    for line in rows:
        print(line, flush=True)
    write_rows(args.json, rows)
    missed = list(beyond_bounds(rows))
    for sentence in missed:
        print(sentence, file=sys.stderr)
    sys.exit(1 if missed or not rows else 0)


def beyond_bounds(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each row of ours that is above its bound."""
    for row in rows:
        bound = BOUNDS.get(row.case)
        if bound is not None and row.ours > bound:
            yield f"{row.case}: {row.ours:.3g} {row.unit}, and at most {bound:g} are allowed (load {row.load:.1f})"


def table(by_name: dict[str, list[Cost]]) -> list[Row]:
    """A row for each number: of steps the median over the processes, of spans the least. None if ours failed."""
    if not by_name["ours"]:
        return []
    medians = {
        name: Cost(
            *(
                min(column) if field.name.startswith("span") else statistics.median(column)
                for field, column in zip(fields(Cost), zip(*map(astuple, costs), strict=True), strict=True)
            )
        )
        for name, costs in by_name.items()
        if costs
    }
    mine, peer = medians["ours"], medians.get("PyTorch")

    def row(case: str, unit: str, number: Callable[[Cost], float], *, least: float = 0.01) -> Row:
        peers = {"torch.profiler": number(peer)} if peer else {}
        return Row(case, unit, number(mine), peers, number(peer) / max(number(mine), least) if peer else 1.0)

    return [
        Row("digits step", "us", mine.step, {}, 1.0),
        row("recording a digits step", "% of a step", lambda cost: cost.added),
        row("recording a digits step, processor time", "% of a step", lambda cost: cost.added_processor_time),
        row("a user's span", "us", lambda cost: cost.span),
        row("a user's span, in another thread", "us", lambda cost: cost.span_in_another_thread),
        row("a user's span, inside one of its name", "us", lambda cost: cost.span_inside_its_own),
        row("a user's span, with a category", "us", lambda cost: cost.span_with_category),
        row("a user's span, with an argument", "us", lambda cost: cost.span_with_an_argument),
        row("a user's span, nothing recorded", "us", lambda cost: cost.span_unrecorded),
    ]


if __name__ == "__main__":
    main()
