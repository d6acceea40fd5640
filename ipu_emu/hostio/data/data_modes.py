"""Modes: real data, or what stands in for it to find out what limits a program.

    real         read, prepared, handed over
    generated    random data, made once; handed over like real data, never prepared
    synthetic    random data, made once; nothing is done for a step at all

What real data cost beyond generated is preparation; what generated data cost beyond synthetic is moving bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio.data.generated_data import like_real
from ipu_emu.hostio.data.sample_structure import Field
from ipu_emu.hostio.data.slot_filling import Filling

__all__ = ["DataMode", "MadeUp", "made_up", "mode_named", "mode_of"]

#: Names a mode for all feeds of a program.
MODE_VARIABLE = "IPU_EMU_DATA_MODE"


class DataMode(Enum):
    """Where step data come from."""

    REAL = "real"
    GENERATED = "generated"
    SYNTHETIC = "synthetic"


def mode_named(name: DataMode | str, asked: str) -> DataMode:
    """The mode, also by its name; raise EmulatorError, beginning with what was ``asked``, if there is none."""
    try:
        return DataMode(name.lower() if isinstance(name, str) else name)
    except ValueError:
        raise EmulatorError(f"{asked}: no such mode; use {', '.join(mode.value for mode in DataMode)}") from None


def mode_of(environment: Mapping[str, str]) -> DataMode:
    """``IPU_EMU_DATA_MODE``, or synthetic if ``TF_POPLAR_FLAGS`` has ``--use_synthetic_data``; else real."""
    name = environment.get(MODE_VARIABLE, "")
    if name:
        return mode_named(name, f"{MODE_VARIABLE}={name}")
    flags = environment.get("TF_POPLAR_FLAGS", "").split()
    return DataMode.SYNTHETIC if "--use_synthetic_data" in flags else DataMode.REAL


@dataclass(frozen=True)
class MadeUp:
    """The same arrays in every step, ``steps`` times (None: without end)."""

    arrays: list[NDArray[Any]]
    steps: int | None
    mode: DataMode

    burst = 1
    used = 0
    ending = threads_only = ""

    def steps_in(self, number: int) -> int:
        """Generated data are handed over step by step, as larger real ones are."""
        return 1

    def draw(self, number: int) -> int | None:
        """The number itself."""
        return None if self.steps is not None and number >= self.steps else number

    def views(self, drawn: int) -> list[NDArray[Any]] | None:
        """Synthetic data are where they are."""
        return self.arrays if self.mode is DataMode.SYNTHETIC else None

    def fill(self, drawn: int, out: Sequence[NDArray[Any]]) -> None:
        """Copy."""
        for slot, array in zip(out, self.arrays, strict=True):
            np.copyto(slot, array)


def made_up(real: Filling, fields: Sequence[Field], samples: int, mode: DataMode, steps: int | None) -> MadeUp:
    """A step of random data: normal numbers for floats; for integers those of the first real step, shuffled.

    Labels stay labels, and indices stay in range.
    """
    drawn = real.draw(0)
    if drawn is None:
        raise FeedError("The source has no whole step of samples; use a smaller micro-batch, or give more samples")
    slot = [np.empty((samples * real.burst, *field.shape), field.dtype) for field in fields]
    real.fill(drawn, slot)
    arrays = [array[:samples] for array in slot]
    random = np.random.default_rng(0)
    return MadeUp([like_real(array, random) for array in arrays], steps, mode)
