"""Two IPUs as a pipeline, against the same two IPUs in turns, and against two instances of one IPU each.

    python benchmarks/pipelining.py [--quick] [--json FILE]

A transformer whose two stages have equal work, 16 micro-batches per update, float32. All contenders make the same
update with the same global batch; their losses are compared first. A round takes the median step of each; the ratio
is the median over rounds of peer / ours: above 1 the pipeline is faster.

The first row is the overhead of the engine: a network of scalars, in nanoseconds of CPU time per instruction.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from support.ending import clean_up_when_told, finished
from support.rounds import Row, measured_in_turns, median_ms, row_of_times, write_rows
from support.two_processes import medians_of, print_median

import ipu_emu.popart as popart
import popdist_py
import popdist_py.popart
from ipu_emu import models
from ipu_emu.program.instructions import WeightUpdate, leaves

MICRO_BATCHES, BATCH, LENGTH, WIDTH, LAYERS, VOCABULARY = 16, 2, 128, 256, 4, 96
OVERHEAD_NS = 3000.0
HERE = Path(__file__).resolve()

#: Runs one update and returns its losses.
Step = Callable[[], np.ndarray]


def options(**values: Any) -> popart.SessionOptions:
    opts = popart.SessionOptions()
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    for name, value in values.items():
        setattr(opts, name, value)
    return opts


def accumulated(count: int) -> dict[str, Any]:
    return {"enableGradientAccumulation": True, "accumulationFactor": count}


def transformer(opts: popart.SessionOptions, device: Any, micro_batches: int, first: int = 0) -> tuple[Any, Step]:
    """A session, and its step on the micro-batches from number ``first`` on."""
    model = models.transformer(batch=BATCH, length=LENGTH, vocabulary=VOCABULARY, layers=LAYERS, width=WIDTH)
    flow = popart.DataFlow(1, {model.loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (1e-3, False), "defaultMomentum": (0.9, True)})
    session = popart.TrainingSession(model.proto, flow, model.loss, optimizer, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCABULARY, (MICRO_BATCHES, BATCH, LENGTH + 1)).astype(np.int32)
    mine = tokens[first : first + micro_batches]
    data = {model.data: mine[:, :, :-1].copy(), model.labels: mine[:, :, 1:].reshape(micro_batches, -1).copy()}
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO(data, anchors)

    def step() -> np.ndarray:
        session.run(stepio)
        return np.array(anchors[model.loss])

    return session, step


def on_two_ipus(pattern: popart.SyncPattern = popart.SyncPattern.Full, **values: Any) -> Step:
    opts = options(virtualGraphMode=popart.VirtualGraphMode.Auto, **accumulated(MICRO_BATCHES), **values)
    device = popart.DeviceManager().acquireAvailableDevice(2, pattern=pattern)
    return transformer(opts, device, MICRO_BATCHES)[1]


def row(case: str, unit: str, contenders: Mapping[str, Callable[[], float]], rounds: int) -> Row:
    """The first contender is ours, the second its peer."""
    times, _ = measured_in_turns(contenders, contenders, rounds)
    return replace(row_of_times(case, times, *contenders), unit=unit)


def against_sharding(rounds: int, seconds: float, pattern: popart.SyncPattern) -> Row:
    """One process, two IPUs: side by side, and one after the other."""
    steps = {"pipelined": on_two_ipus(pattern, enablePipelining=True), "sharded": on_two_ipus()}
    for _ in range(2):
        losses = [step() for step in steps.values()]
        if not np.array_equal(*losses):
            raise SystemExit(f"pipelining.py: losses differ: {losses}")
    contenders = {name: lambda step=step: median_ms(step, seconds) for name, step in steps.items()}
    return row(f"2 stages, {pattern.name}, against sharding", "ms", contenders, rounds)


def against_instances(rounds: int, seconds: float) -> Row:
    """One instance with two IPUs, and two instances with one IPU and half of the micro-batches each."""
    launcher = str(Path(sys.executable).with_name("poprun-py"))

    def launched(kind: str, instances: int) -> float:
        count = str(instances)
        program = [sys.executable, str(HERE), "--worker", kind, "--seconds", str(seconds)]
        command = [launcher, "--num-instances", count, "--num-replicas", count]
        if kind == "pipelined":
            command += ["--ipus-per-replica", "2"]
        done = finished([*command, *program], timeout=120)
        medians = medians_of(done.stdout)
        if done.returncode or len(medians) != instances:
            raise SystemExit(f"pipelining.py: {kind} failed:\n{done.stdout}{done.stderr}")
        return max(medians)

    contenders = {
        "pipelined": lambda: launched("pipelined", 1),
        "2 instances, data-parallel": lambda: launched("parallel", 2),
    }
    return row("2 stages, 1 instance, against 2 instances", "ms", contenders, rounds)


def worker(kind: str, seconds: float) -> None:
    """An instance: prints its median step."""
    popdist_py.init()
    if kind == "pipelined":
        opts = options(virtualGraphMode=popart.VirtualGraphMode.Auto, enablePipelining=True)
        micro_batches = MICRO_BATCHES
        device = popart.DeviceManager().acquireAvailableDevice(2, pattern=popart.SyncPattern.SinglePipeline)
    else:
        opts = options()
        device = popdist_py.popart.getDevice()
        micro_batches = MICRO_BATCHES // popdist_py.getNumInstances()
    for name, value in accumulated(micro_batches).items():
        setattr(opts, name, value)
    popdist_py.popart.configureSessionOptions(opts)
    _, step = transformer(opts, device, micro_batches, popdist_py.getInstanceIndex() * micro_batches)
    print_median(step, max(3, int(seconds / 0.3)), warm_up=3)


def overhead(rounds: int, seconds: float) -> Row:
    """Nanoseconds per instruction of an update of a network of 1 x 1 matrices: the overhead of calls and loops."""
    builder, layers, micro_batches = popart.Builder(), 200, 8
    x = y = builder.addInputTensor("FLOAT", [1, 1])
    for number in range(layers):
        w = builder.addInitializedInputTensor(np.ones((1, 1), np.float32), f"w{number}")
        y = builder.aiOnnx.matmul([y, w])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(1e-9),
        device,
        userOptions=options(**accumulated(micro_batches)),
    )
    session.prepareDevice()
    session.weightsFromHost()
    stepio = popart.PyStepIO({x: np.ones((micro_batches, 1, 1), np.float32)}, session.initAnchorArrays())
    updates = sum(isinstance(leaf, WeightUpdate) for leaf in leaves(session.executable.program))
    instructions = updates + micro_batches * (sum(1 for _ in leaves(session.executable.program)) - updates)
    times = [1e6 * median_ms(lambda: session.run(stepio), seconds / 3, process_time) for _ in range(rounds)]
    ours = statistics.median(times) / instructions
    return Row("engine, per instruction", "ns", ours, {"limit": OVERHEAD_NS}, OVERHEAD_NS / ours)


def main() -> None:
    parser = argparse.ArgumentParser(description="A pipeline of two IPUs against sharding and data parallelism.")
    parser.add_argument("--quick", action="store_true", help="one sync pattern, one short round; less than 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--worker", choices=["pipelined", "parallel"], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=None, help="length of a block of steps")
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (7, 3.0)
    seconds = args.seconds or seconds
    if args.worker:
        worker(args.worker, seconds)
        return
    clean_up_when_told()
    rows = []
    patterns = (
        [popart.SyncPattern.Full] if args.quick else [popart.SyncPattern.SinglePipeline, popart.SyncPattern.Full]
    )
    sharding = (partial(against_sharding, pattern=pattern) for pattern in patterns)
    for measure in (overhead, *sharding, against_instances):
        rows.append(measure(rounds, seconds))
        print(rows[-1], flush=True)
    write_rows(args.json, rows)


if __name__ == "__main__":
    main()
