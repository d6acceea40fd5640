"""StepRunner: runs the steps of a session with real, generated or synthetic step data.

    real         the user's arrays, callbacks or feed
    generated    one chunk of random data for each input, generated once and passed in every step
    synthetic    the same, but on the device from the beginning: the program has no host I/O

Without a device nothing is computed; ``ipu-emu hostio`` then measures the maximum throughput of the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.hostio.data.data_modes import DataMode, RepeatedFeed, like_real, synthetic_chunk
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.hostio.feeds.step_feed import CallbackFeed, StepFeed, check_sizes
from ipu_emu.hostio.probe.probe import Probe, StepProbe

#: The data of a step.
StepData = ArrayFeed | CallbackFeed


class StepRunner:
    """The steps of one session.

    ``broadcast``: ids of the inputs that are the same for all replicas. ``synthetic``: the kind of synthetic data; by
    default like the data of the first step. ``prefetch``: call callbacks ahead.
    """

    def __init__(
        self, mode: DataMode, broadcast: frozenset[str], *, synthetic: str | None = None, prefetch: bool = True
    ) -> None:
        self._mode, self._broadcast, self._synthetic, self._prefetch = mode, broadcast, synthetic, prefetch
        self._sizes_checked = False
        self._filled: Engine | None = None
        self._repeated: RepeatedFeed | None = None
        self._probe: StepProbe | None = None
        self._host_only = False

    @property
    def is_measured(self) -> bool:
        """Whether ``ipu-emu hostio`` measures the program."""
        return Probe.from_environment(os.environ) is not None

    def run(self, engine: Engine, data: StepData, *, host_only: bool = False, checks_sizes: bool = True) -> None:
        """Run a step, or as many as are measured; with ``host_only`` only the host's part of it.

        ``checks_sizes``: check the sizes of arrays in the first step.
        """
        self._host_only = host_only
        self._sizes_checked = self._sizes_checked or not checks_sizes
        if isinstance(data, StepFeed):
            self._step(engine, data)
            return
        if self._probe is None and self.is_measured:
            self._probe = StepProbe.from_environment(self._mode, *_amounts(engine))
        if self._probe is None:
            self._step(engine, data)
        else:
            self._probe.run(lambda: self._timed(engine, data))

    def _timed(self, engine: Engine, data: StepData) -> float:
        """Run a step; return the seconds spent waiting for callbacks."""
        before = engine.wall.seconds()["host I/O"]
        self._step(engine, data)
        calls = self._mode is DataMode.REAL and isinstance(data, CallbackFeed)
        return engine.wall.seconds()["host I/O"] - before if calls else 0.0

    def _step(self, engine: Engine, data: StepData) -> None:
        if self._mode is DataMode.SYNTHETIC:
            self._fill(engine, data)
        elif self._mode is DataMode.REAL or isinstance(data, StepFeed):
            self._attach(engine, data)
            self._go(engine, data)
        else:
            self._repeated = self._repeated or RepeatedFeed(self._stand_ins(engine, data))
            self._go(engine, self._repeated)

    def _go(self, engine: Engine, feed: StepData | RepeatedFeed) -> None:
        """Run a step, or only copy its inputs."""
        if not self._host_only:
            engine.run(feed)
            return
        step = engine.executable.step
        for _ in range(step.batches * step.accumulation):
            for tensor in engine.executable.inputs:
                for replica in range(1 if tensor.id in self._broadcast else step.replicas):
                    place = engine.view(tensor.id, replica)
                    np.copyto(place, feed.read(tensor.id).reshape(place.shape))

    def _attach(self, engine: Engine, data: StepData) -> None:
        """Start a step with the user's data; check the sizes of arrays in the first step."""
        tensors = engine.executable.graph.tensors
        if isinstance(data, CallbackFeed):
            data.attach(tensors, prefetch=self._prefetch)
        else:
            data.attach(tensors)
            if not self._sizes_checked:
                check_sizes(data, engine.executable, self._broadcast)
            self._sizes_checked = True

    def _stand_ins(self, engine: Engine, data: StepData) -> Mapping[str, NDArray[Any]]:
        """Return random chunks with the shapes and ranges of the user's first ones."""
        self._attach(engine, data)
        random = np.random.default_rng(0)
        return {
            tensor.id: like_real(np.array(data.read(tensor.id)).reshape(tensor.shape), random)
            for tensor in engine.executable.inputs
        }

    def _fill(self, engine: Engine, data: StepData) -> None:
        """Run a step on data that were written to the device before the first step; a feed still advances."""
        if self._filled is not engine:
            for id, chunk in self._synthetic_chunks(engine, data).items():
                engine.write(id, chunk)
            self._filled = engine
        elif isinstance(data, StepFeed) and self._synthetic is None:
            data.attach(engine.executable.graph.tensors)
        if not self._host_only:
            engine.run(RepeatedFeed({}))

    def _synthetic_chunks(self, engine: Engine, data: StepData) -> Mapping[str, NDArray[Any]]:
        if self._synthetic is None:
            return self._stand_ins(engine, data)
        return {tensor.id: synthetic_chunk(self._synthetic, tensor) for tensor in engine.executable.inputs}


def _amounts(engine: Engine) -> tuple[int, int]:
    """Return how many samples (by the first axis of the first input) and bytes a step of all local replicas takes."""
    step, inputs = engine.executable.step, engine.executable.inputs
    chunks = step.batches * step.accumulation * step.replicas
    rows = prod(inputs[0].shape[:1]) if inputs else 1
    return chunks * rows, chunks * sum(tensor.nbytes for tensor in inputs)
