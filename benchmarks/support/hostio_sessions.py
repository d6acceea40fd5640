"""Cases of ``benchmarks/hostio.py`` in which a session computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from time import sleep
from typing import Any

import numpy as np
import psutil
from support.rounds import Row, median_ms, rounds_of, row

from ipu_emu import models, popart
from ipu_emu.hostio import Feed

__all__ = ["endurance", "io_tiles", "overlap", "staging"]

BATCH = 32


def session(synthetic: bool) -> tuple[popart.TrainingSession, models.Model]:
    model, opts = models.resnet8(batch=BATCH), popart.SessionOptions()
    if synthetic:
        opts.syntheticDataMode = popart.SyntheticDataMode.RandomNormal
    training = popart.TrainingSession(
        model.proto,
        popart.DataFlow(1, [model.loss]),
        model.loss,
        popart.ConstSGD(1e-3),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472}),
        userOptions=opts,
    )
    training.prepareDevice()
    training.weightsFromHost()
    return training, model


def work(sample: Any, times: int) -> Any:
    """Preparation in Python with an adjustable cost."""
    image, label = sample
    for _ in range(times):
        image = np.tanh(image)
    return image, label


def overlap(*, rounds: int, seconds: float) -> list[Row]:
    (real, model), (synthetic, _) = session(False), session(True)
    random = np.random.default_rng(0)
    data = (random.standard_normal((1024, 3, 32, 32), np.float32), random.integers(0, 10, 1024).astype(np.int32))
    anchors = real.initAnchorArrays()
    nothing = popart.PyStepIO({}, synthetic.initAnchorArrays())
    step = median_ms(lambda: synthetic.run(nothing), seconds)
    unit = median_ms(lambda: work((data[0][0], 0), 100), seconds / 4) / 100
    times = round(0.6 * step / BATCH / unit)
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


def chain(strategy: Any, depth: int = 1) -> tuple[Any, str, Any]:
    """(session, input, anchors) of eight micro-batches of eight products; the input has ``depth`` buffers."""
    tiles = popart.TileSet.Compute if strategy is popart.ExchangeStrategy.JustInTime else popart.TileSet.IO
    random, builder, opts = np.random.default_rng(0), popart.Builder(), popart.SessionOptions()
    x = y = builder.addInputTensor(popart.TensorInfo("FLOAT", [64, 512]), popart.InputSettings(tiles, strategy))
    for _ in range(8):
        weights = (random.standard_normal((512, 512)) / 22).astype(np.float32)
        y = builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(weights)])
    opts.numIOTiles, opts.defaultBufferingDepth = 32, depth
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    flow = popart.DataFlow(8, {y: popart.AnchorReturnType("Final")})
    inference = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=opts)
    inference.prepareDevice()
    return inference, x, inference.initAnchorArrays()


def io_tiles(*, rounds: int, seconds: float) -> list[Row]:
    """A callback waits for each micro-batch, as for a disk or a network, 60 % as long as computing it takes."""
    sessions = {name: chain(strategy) for name, strategy in _STRATEGIES.items()}
    rates, step = callbacks(sessions, (0.6,), rounds, seconds)
    return [row(f"I/O tiles, {step:.1f} ms of compute per micro-batch", "samples/s", rates, "ours", 8 * 64)]


def staging(*, rounds: int, seconds: float) -> list[Row]:
    """The same wait on average, but all of it in every fourth micro-batch; Streaming Memory evens it out."""
    sessions = {
        "ours": chain(_STRATEGIES["just in time"], depth=8),
        "I/O tiles": chain(_STRATEGIES["ours"]),
        "just in time": chain(_STRATEGIES["just in time"]),
    }
    rates, step = callbacks(sessions, (0.0, 0.0, 0.0, 2.4), rounds, seconds)
    case = f"Streaming Memory, uneven data, {step:.1f} ms of compute per micro-batch"
    return [row(case, "samples/s", rates, "ours", 8 * 64)]


def callbacks(sessions: Any, waits: tuple[float, ...], rounds: int, seconds: float) -> tuple[Any, float]:
    """Rates of sessions whose callbacks wait for these fractions of a micro-batch in turn, and the milliseconds."""
    chunk = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)
    session, x, anchors = sessions["just in time"]
    batch = np.tile(chunk, (8, 1, 1))
    step = median_ms(lambda: session.run(popart.PyStepIO({x: batch}, anchors)), seconds) / 8

    def runs(name: str) -> Iterator[Any]:
        session, _, anchors = sessions[name]
        turns = cycle(waits)

        def prepare(id: str, prefetch: bool) -> np.ndarray:
            sleep(next(turns) * step / 1e3)
            return chunk

        stepio = popart.PyStepIOCallback(prepare, lambda id: None, lambda id: next(iter(anchors.values())), _nothing)
        while True:
            yield session.run(stepio)

    return rounds_of({name: lambda name=name: runs(name) for name in sessions}, rounds=rounds, seconds=seconds), step


_STRATEGIES = {
    "ours": popart.ExchangeStrategy.OverlapLoops,
    "just in time": popart.ExchangeStrategy.JustInTime,
}


def _nothing(id: str) -> None:
    pass


def endurance(steps: int = 100_000) -> None:
    """Resident memory and open descriptors of a session with its feed: both must stay constant."""
    data = np.random.default_rng(0).standard_normal((1000, 16), np.float32)
    kinds: list[tuple[str, Any, bool, int]] = [
        ("threads", None, False, 1),
        ("processes", lambda sample: sample, True, 1),
        ("threads, staged", None, False, 4),
    ]
    for kind, prepare, processes, depth in kinds:
        x, session = small(depth)
        with Feed({x: data}, micro_batch=4, prepare=prepare, epochs=None, shuffle=True, processes=processes) as feed:
            stepio, seen = popart.FeedStepIO(feed, session.initAnchorArrays()), psutil.Process()
            for step in range(steps):
                session.run(stepio)
                if (step + 1) % (steps // 10) == 0:
                    rows = [seen, *seen.children()]
                    memory = sum(process.memory_full_info().uss for process in rows) / 1e6
                    open_now = sum(process.num_fds() for process in rows)
                    print(f"{kind:15} step {step + 1:7,}: {memory:7.1f} MB, {open_now} descriptors", flush=True)
        session.close()


def small(depth: int) -> tuple[str, Any]:
    """An input and a session of one op; the input has ``depth`` buffers."""
    builder, opts = popart.Builder(), popart.SessionOptions()
    x = builder.addInputTensor("FLOAT", [4, 16])
    y = builder.aiOnnx.relu([x])
    opts.defaultBufferingDepth = depth
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device, userOptions=opts)
    session.prepareDevice()
    return x, session
