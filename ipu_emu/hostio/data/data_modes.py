"""Data modes: real step data, or random data in their place, to find out what limits a program.

    real         read, prepared and passed to the program
    generated    random data, generated once; passed like real data, but never prepared
    synthetic    random data, generated once; no work is done for a step

Real data minus generated data is the cost of preparation; generated minus synthetic is the cost of moving bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.graph import Tensor
from ipu_emu.hostio.data.sample_structure import Field
from ipu_emu.hostio.data.slot_fillers import SlotFiller
from ipu_emu.ops.random.normal_numbers import normal_numbers
from popdist_py.messages.suggestion import did_you_mean

#: The environment variable that sets the mode of all feeds of a program.
MODE_VARIABLE = "IPU_EMU_DATA_MODE"

#: The values of --synthetic_data_categories in TF_POPLAR_FLAGS; the first is the data of steps.
_CATEGORIES = ("infeed", "outfeed", "seed", "hostembedding", "parameters")


class DataMode(Enum):
    """Where step data come from."""

    REAL = "real"
    GENERATED = "generated"
    SYNTHETIC = "synthetic"


def mode_named(name: DataMode | str, setting: str) -> DataMode:
    """Return a mode given as such or by name; raise EmulatorError, naming ``setting``, for an unknown name."""
    try:
        return DataMode(name.lower() if isinstance(name, str) else name)
    except ValueError:
        modes = [mode.value for mode in DataMode]
        raise EmulatorError(f"{setting}: no such mode; use {', '.join(modes)}{did_you_mean(name, modes)}") from None


def mode_of(environment: Mapping[str, str]) -> DataMode:
    """Return the mode in ``IPU_EMU_DATA_MODE``; else synthetic if ``TF_POPLAR_FLAGS`` requests it; else real.

    The flag --synthetic_data_categories names what is synthetic; without it, --use_synthetic_data means all.
    """
    name = environment.get(MODE_VARIABLE, "")
    if name:
        return mode_named(name, f"{MODE_VARIABLE}={name}")
    parts = (flag.lstrip("-").partition("=") for flag in environment.get("TF_POPLAR_FLAGS", "").split())
    flags = {flag: value for flag, _, value in parts}
    if "synthetic_data_categories" in flags:
        return DataMode.SYNTHETIC if "infeed" in _categories(flags["synthetic_data_categories"]) else DataMode.REAL
    chosen = flags.get("use_synthetic_data", "false").lower() not in ("false", "0")
    return DataMode.SYNTHETIC if chosen else DataMode.REAL


def _categories(text: str) -> list[str]:
    """The categories in ``text``; raise EmulatorError for one that does not exist."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _CATEGORIES:
            raise EmulatorError(
                f"--synthetic_data_categories={text} in TF_POPLAR_FLAGS: there is no category {name!r}; "
                f"use {', '.join(_CATEGORIES)}{did_you_mean(name, _CATEGORIES)}"
            )
    return names


# Generated data


def like_real(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Return random data like ``array``: normal values for floats; else its own values, shuffled."""
    if array.dtype.kind == "f":
        return normal_numbers(random, array.shape).astype(array.dtype, copy=False)
    return random.permutation(array.reshape(-1)).reshape(array.shape)


@dataclass(frozen=True)
class GeneratedFiller:
    """A slot filler that gives the same arrays in every step, for ``steps`` steps (None: without end)."""

    arrays: list[NDArray[Any]]
    steps: int | None
    mode: DataMode

    burst = 1
    used = 0
    ending = threads_only = ""

    def steps_in(self, number: int) -> int:
        """Return 1: generated data are handed over step by step, as large real steps are."""
        return 1

    def draw(self, number: int) -> int | None:
        """Return the slot number itself, or None at the end."""
        return None if self.steps is not None and number >= self.steps else number

    def views(self, drawn: int) -> list[NDArray[Any]] | None:
        """Return the arrays themselves in synthetic mode, where nothing is copied."""
        return self.arrays if self.mode is DataMode.SYNTHETIC else None

    def fill(self, drawn: int, out: Sequence[NDArray[Any]]) -> None:
        """Copy the arrays into a slot."""
        for slot, array in zip(out, self.arrays, strict=True):
            np.copyto(slot, array)


def generated_step(
    real: SlotFiller, fields: Sequence[Field], samples: int, mode: DataMode, steps: int | None
) -> GeneratedFiller:
    """Return a filler for random data, made from the first real step: see ``like_real``.

    Labels stay labels, and indices stay in range.
    """
    drawn = real.draw(0)
    if drawn is None:
        raise FeedError(
            "The source has fewer samples than one step needs; use a smaller micro-batch, or more samples"
        )
    slot = [np.empty((samples * real.burst, *field.shape), field.dtype) for field in fields]
    real.fill(drawn, slot)
    arrays = [array[:samples] for array in slot]
    random = np.random.default_rng(0)
    return GeneratedFiller([like_real(array, random) for array in arrays], steps, mode)


class RepeatedFeed:
    """A feed that gives the same ``chunks`` (by input id) in every micro-batch and discards the outputs."""

    def __init__(self, chunks: Mapping[str, NDArray[Any]]) -> None:
        self._chunks = chunks
        self._discarded: dict[str, NDArray[Any]] = {}

    def read(self, id: str) -> NDArray[Any]:
        """Return the data of an input."""
        return self._chunks[id]

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Copy an output to a buffer that is never read, so that its bytes are moved as real outputs are."""
        if id not in self._discarded:
            self._discarded[id] = np.empty(value.shape, value.dtype)
        np.copyto(self._discarded[id], value)


# Synthetic data

#: Values by the names of PopART's SyntheticDataMode.
_SYNTHETIC_VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]] = {
    "Zeros": lambda random, shape: np.zeros(shape),
    "RandomNormal": normal_numbers,
    "RandomUniform": lambda random, shape: random.random(shape),
}


def synthetic_chunk(mode: str, tensor: Tensor) -> NDArray[Any]:
    """Return the synthetic data of every micro-batch and replica; a function of the tensor id alone.

    Integers are zero or one.
    """
    values = _SYNTHETIC_VALUES[mode](np.random.default_rng(crc32(tensor.id.encode())), tensor.shape)
    return (values if tensor.dtype.is_float else values > 1).astype(tensor.dtype.numpy)
