"""Stepping: runs the steps of a session with its step data, or with what stands in for them.

    real         the user's arrays, callbacks or feed
    generated    one chunk of random data for each input, made once, handed over again and again
    synthetic    the same, but on the device from the beginning: the program has no host I/O

Without a device nothing is computed: then ``ipu-emu hostio`` measures what the host could give at most.

Synthetic data are asked for by ``syntheticDataMode``, or for all sessions by the environment (see ``hostio.modes``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.hostio import (
    DataMode,
    Probe,
    RepeatedFeed,
    StepFeed,
    StepProbe,
    check_sizes,
    like_real,
    mode_of,
    synthetic_chunk,
)
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.session.step_io import PyStepIO, PyStepIOCallback
from ipu_emu.popart.types.enums import SyntheticDataMode

__all__ = ["StepIO", "Stepping", "mode_for"]

StepIO = PyStepIO | PyStepIOCallback


def mode_for(options: SessionOptions) -> DataMode:
    """What a session is given for data."""
    synthetic = options.syntheticDataMode is not SyntheticDataMode.Off
    return DataMode.SYNTHETIC if synthetic else mode_of(os.environ)


class Stepping:
    """The steps of one session; ``broadcast`` are the inputs of which one chunk serves all replicas."""

    def __init__(self, options: SessionOptions, broadcast: frozenset[str]) -> None:
        self._options, self._broadcast = options, broadcast
        self._mode = mode_for(options)
        self._checked = False
        self._filled: Engine | None = None
        self._repeated: RepeatedFeed | None = None
        self._probe: StepProbe | None = None
        self._host_only = False

    @property
    def is_measured(self) -> bool:
        """Whether ``ipu-emu hostio`` runs the program."""
        return Probe.from_environment(os.environ) is not None

    def run(self, engine: Engine, stepio: StepIO, *, host_only: bool = False) -> None:
        """Run a step, or as many as are measured; with ``host_only`` only what the host does for it."""
        self._host_only = host_only
        if isinstance(stepio, StepFeed):
            self._step(engine, stepio)
            return
        if self._probe is None:
            self._probe = StepProbe.from_environment(self._mode, *_amounts(engine))
        if self._probe is None:
            self._step(engine, stepio)
        else:
            self._probe.run(lambda: self._timed(engine, stepio))

    def _timed(self, engine: Engine, stepio: StepIO) -> float:
        """Run a step; return for how long callbacks were waited for."""
        before = engine.wall.seconds()["host I/O"]
        self._step(engine, stepio)
        calls = self._mode is DataMode.REAL and isinstance(stepio, PyStepIOCallback)
        return engine.wall.seconds()["host I/O"] - before if calls else 0.0

    def _step(self, engine: Engine, stepio: StepIO) -> None:
        if self._mode is DataMode.SYNTHETIC:
            self._fill(engine, stepio)
        elif self._mode is DataMode.REAL or isinstance(stepio, StepFeed):
            self._attach(engine, stepio)
            self._go(engine, stepio)
        else:
            self._repeated = self._repeated or RepeatedFeed(self._stand_ins(engine, stepio))
            self._go(engine, self._repeated)

    def _go(self, engine: Engine, feed: StepIO | RepeatedFeed) -> None:
        """Run a step, or only hand over its inputs."""
        if not self._host_only:
            engine.run(feed)
            return
        step = engine.executable.step
        for _ in range(step.batches * step.accumulation):
            for tensor in engine.executable.inputs:
                for replica in range(1 if tensor.id in self._broadcast else step.replicas):
                    place = engine.view(tensor.id, replica)
                    np.copyto(place, feed.read(tensor.id).reshape(place.shape))

    def _attach(self, engine: Engine, stepio: StepIO) -> None:
        """Begin a step of the user's data; check their sizes once."""
        tensors = engine.executable.graph.tensors
        if isinstance(stepio, PyStepIOCallback):
            stepio.attach(tensors, prefetch=bool(self._options.enablePrefetchDatastreams))
        else:
            stepio.attach(tensors)
            if stepio.checksSizes and not self._checked:
                check_sizes(stepio, engine.executable, self._broadcast)
        self._checked = True

    def _stand_ins(self, engine: Engine, stepio: StepIO) -> Mapping[str, NDArray[Any]]:
        """Random chunks that look like the first ones of the user."""
        self._attach(engine, stepio)
        random = np.random.default_rng(0)
        return {
            tensor.id: like_real(np.array(stepio.read(tensor.id)).reshape(tensor.shape), random)
            for tensor in engine.executable.inputs
        }

    def _fill(self, engine: Engine, stepio: StepIO) -> None:
        """Run a step on what is on the device; put it there before the first. A feed moves on, until it ends."""
        if self._filled is not engine:
            for id, chunk in self._synthetic(engine, stepio).items():
                engine.write(id, chunk)
            self._filled = engine
        elif isinstance(stepio, StepFeed) and self._options.syntheticDataMode is SyntheticDataMode.Off:
            stepio.attach(engine.executable.graph.tensors)
        if not self._host_only:
            engine.run(RepeatedFeed({}))

    def _synthetic(self, engine: Engine, stepio: StepIO) -> Mapping[str, NDArray[Any]]:
        mode = self._options.syntheticDataMode
        if mode is SyntheticDataMode.Off:
            return self._stand_ins(engine, stepio)
        return {tensor.id: synthetic_chunk(mode.name, tensor) for tensor in engine.executable.inputs}


def _amounts(engine: Engine) -> tuple[int, int]:
    """Samples, by the first axis of the first input, and bytes that a step of all local replicas takes."""
    step, inputs = engine.executable.step, engine.executable.inputs
    chunks = step.batches * step.accumulation * step.replicas
    rows = prod(inputs[0].shape[:1]) if inputs else 1
    return chunks * rows, chunks * sum(tensor.nbytes for tensor in inputs)
