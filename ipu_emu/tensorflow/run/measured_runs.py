"""Measured runs: the runs of a program with real, generated or synthetic data, which ``ipu-emu hostio`` measures."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.graph import Role
from ipu_emu.hostio import StepProbe
from ipu_emu.hostio.data.data_modes import DataMode, like_real, mode_of
from ipu_emu.tensorflow.importer.section_import import ImportedSection

#: A function that returns the arrays of the next element, and the ids of these.
Pull = tuple[Callable[[], Sequence[NDArray[Any]]], Sequence[str | None]]


def is_synthetic() -> bool:
    """Whether programs run on data that are on the device from the beginning."""
    return mode_of(os.environ) is DataMode.SYNTHETIC


class MeasuredRuns:
    """The runs of a section that takes ``elements`` elements of its infeeds in each run."""

    def __init__(self, imported: ImportedSection, elements: int) -> None:
        self._mode = mode_of(os.environ)
        self._generated: dict[int, list[NDArray[Any]]] = {}
        inputs = imported.graph.with_role(Role.INPUT)
        rows = prod(inputs[0].shape[:1]) if inputs else 1
        nbytes = sum(tensor.nbytes for tensor in inputs)
        probe = StepProbe.from_environment(self._mode, elements * rows, elements * nbytes) if inputs else None
        self._probe = probe

    def pulls(self, infeeds: Sequence[tuple[Any, Sequence[str | None]]]) -> list[Pull]:
        """The functions from which a run takes its elements; generated elements are like the first real one."""
        if self._mode is not DataMode.GENERATED:
            return [(queue.next_element, ids) for queue, ids in infeeds]
        return [(self._generator(number, queue), ids) for number, (queue, ids) in enumerate(infeeds)]

    def _generator(self, number: int, queue: Any) -> Callable[[], Sequence[NDArray[Any]]]:
        if number not in self._generated:
            random = np.random.default_rng(0)
            self._generated[number] = [like_real(np.asarray(array), random) for array in queue.next_element()]
        return lambda: self._generated[number]

    def run(self, engine: Engine, step: Callable[[], None]) -> None:
        """Run ``step``, or as many steps as are measured; raise SystemExit after the last of them."""
        if self._probe is None:
            step()
            return

        def timed() -> float:
            before = engine.wall.seconds()["host I/O"]
            step()
            return engine.wall.seconds()["host I/O"] - before if self._mode is DataMode.REAL else 0.0

        self._probe.run(timed)
