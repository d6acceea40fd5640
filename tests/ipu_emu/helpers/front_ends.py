"""Front ends: what all of them have, as a table, and the check of each cell on a small program that they train.

A face has ``train(settings)``, which returns the weights after a step, ``resumed(folder)``, which returns those of
two runs that must be equal, ``offline(file, patch)``, which returns those before and after a step and after a step of
an executable that was compiled without a device, and ``schedules``, as it names them. A check fails for a face that
accepts a setting without its effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ipu_emu import trace
from ipu_emu.session import compiled_program
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.program_profiles import read_profiles
from ipu_emu.trace.report_data import report_data
from popdist_py.environment import EXECUTABLE_CACHE_PATH

__all__ = ["CHECKS", "FACES", "WIDE", "Settings", "Weights", "cells", "check", "compiled_before", "table"]

Weights = list[NDArray[Any]]
Profile = dict[str, Any]
#: The width of a layer whose weights and states do not fit an IPU of a C2 card, which has 304 MiB.
WIDE = 4700
FACES = ("PopART", "PopTorch", "ipu_emu.torch", "TensorFlow 1", "Keras")


@dataclass(frozen=True)
class Settings:
    """How the program is trained; ``wide``: its weights do not fit a C2 card."""

    wide: bool = False
    replicas: int = 1
    schedule: Any = None
    off_chip: bool = False
    sharded: bool = False
    io_tiles: int = 0


class Cell:
    """A face, and the folder and the environment of its test."""

    def __init__(self, face: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.face, self.folder, self.patch = face, folder, patch
        self._runs = 0

    def run(self, **settings: Any) -> tuple[Weights, Profile]:
        """The weights, and the profile of the training program that a trace has."""
        self._runs += 1
        folder = self.folder / f"run{self._runs}"
        trace.start(folder)
        try:
            weights = self.face.train(Settings(**settings))
        finally:
            trace.stop()
        profiles = [profile for profile in read_profiles(folder).programs if profile["phase"] == "training"]
        return weights, profiles[-1]

    def report(self) -> dict[str, Any]:
        """The data of the report of the last run."""
        return report_data(analyse(read_run(self.folder / f"run{self._runs}")))


def same(first: Weights, second: Weights) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def memory_check(cell: Cell) -> None:
    cell.patch.setenv("IPU_EMU_SYSTEM", "c2")
    with pytest.raises(Exception, match=r"Out of memory: IPU 0 needs .* and has (304 MiB|256 KiB)"):
        cell.face.train(Settings(wide=True))


def modelled_time(cell: Cell) -> None:
    seconds = {}
    for system in ("pod16", "bow-pod16", "c2"):
        cell.patch.setenv("IPU_EMU_SYSTEM", system)
        by_category = cell.run()[1]["modelled_seconds_by_category"]
        seconds[system] = by_category["compute"] + by_category["weight update"]
    assert seconds["bow-pod16"] < seconds["pod16"] < 2 * seconds["c2"]


def memory_page(cell: Cell) -> None:
    weights, profile = cell.run()
    (memory,) = profile["memory"]
    use = memory["bytes_by_use"]
    variables = use["weights"] + use["optimiser states"] + use["other variables"]
    assert 2 * sum(value.nbytes for value in weights) <= variables < memory["bytes"] == sum(use.values())


def profile_in_report(cell: Cell) -> None:
    _, profile = cell.run()
    (program,) = (entry for entry in cell.report()["programs"] if entry["phase"] == "training")
    assert program["name"] == profile["name"]


def executable_cache(cell: Cell) -> None:
    cell.patch.setenv(EXECUTABLE_CACHE_PATH, str(cell.folder / "cache"))
    expected = cell.face.train(Settings())
    cell.patch.setattr(compiled_program, "lowered", None)
    assert same(cell.face.train(Settings()), expected)


def offline_executable(cell: Cell) -> None:
    before, expected, weights = cell.face.offline(cell.folder / "executable", cell.patch)
    assert same(weights, expected)
    assert not same(before, expected)


def checkpoint_on_another_layout(cell: Cell) -> None:
    assert same(*cell.face.resumed(cell.folder / "checkpoints"))


def schedules(cell: Cell) -> None:
    expected = cell.face.train(Settings())
    for schedule in cell.face.schedules:
        weights, profile = cell.run(schedule=schedule)
        assert profile["pipeline"]["efficiency"] > 0
        assert same(weights, expected)


def tensor_sharding(cell: Cell) -> None:
    expected, before = cell.run(replicas=2)
    weights, profile = cell.run(replicas=2, sharded=True)
    assert same(weights, expected)
    assert profile["listing"] != before["listing"]


def off_chip_states(cell: Cell) -> None:
    expected, before = cell.run()
    weights, profile = cell.run(off_chip=True)
    assert same(weights, expected)
    assert profile["modelled_seconds_by_category"]["Streaming Memory"] > 0
    assert before["modelled_seconds_by_category"]["Streaming Memory"] == 0


def io_tiles(cell: Cell) -> None:
    schedule = cell.face.schedules[0]
    expected, before = cell.run(schedule=schedule)
    weights, profile = cell.run(schedule=schedule, io_tiles=128)
    assert same(weights, expected)
    assert profile["modelled_seconds"] != before["modelled_seconds"]


def synthetic_data(cell: Cell) -> None:
    cell.patch.setenv("IPU_EMU_DATA_MODE", "synthetic")
    weights, profile = cell.run()
    assert "HostLoad" not in profile["listing"]
    assert all(np.isfinite(value).all() for value in weights)


def weights_digest(cell: Cell) -> None:
    digests = [
        (cell.run(schedule=schedule), cell.report()["weights"])[1] for schedule in (None, cell.face.schedules[0])
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 16
    cell.run(replicas=2)
    assert cell.report()["weights"] != digests[0]


def compiled_before(
    train: Callable[..., Weights], cache: Path, patch: pytest.MonkeyPatch, expected: Weights
) -> tuple[Weights, Weights, Weights]:
    """The weights of a run that only compiles into the cache, the ``expected`` ones, and those of the next run."""
    patch.setenv(EXECUTABLE_CACHE_PATH, str(cache))
    before = train(offline=True)
    patch.setattr(compiled_program, "lowered", None)
    return before, expected, train()


CHECKS: dict[str, Callable[[Cell], None]] = {
    "memory check": memory_check,
    "modelled time": modelled_time,
    "memory page": memory_page,
    "profile in the report": profile_in_report,
    "executable cache": executable_cache,
    "offline executable": offline_executable,
    "checkpoint, and resuming on another layout": checkpoint_on_another_layout,
    "schedules": schedules,
    "replicated tensor sharding": tensor_sharding,
    "off-chip states": off_chip_states,
    "I/O tiles": io_tiles,
    "synthetic data": synthetic_data,
    "digest of weights": weights_digest,
}


def cells(*faces: str) -> list[tuple[str, str]]:
    """The cells of these faces."""
    return [(name, face) for face in faces for name in CHECKS]


def check(name: str, face: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Check a cell."""
    CHECKS[name](Cell(face, folder, patch))


def table() -> str:
    """The table as Markdown."""
    rows = [["", *FACES], ["---"] * (1 + len(FACES))]
    rows += [[name, *("yes" for _ in FACES)] for name in CHECKS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
