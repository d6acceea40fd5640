"""Sample structure: one array, a tuple of arrays, or a dict of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError


@dataclass(frozen=True)
class Field:
    """Element type and shape of one array of every sample."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: NDArray[Any]) -> Field:
        """Return the field of an array of a sample; raise FeedError if it does not hold numbers."""
        if array.dtype.kind not in "biufcV":
            raise FeedError(f"a sample holds {array.dtype} data; a feed carries numbers only: convert it in prepare")
        return cls(array.dtype, array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class SampleStructure:
    """``keys`` of a dict, positions of a tuple, or one empty key for a single array."""

    kind: Any
    keys: tuple[str, ...]

    def split(self, sample: Any) -> list[NDArray[Any]]:
        """Return the arrays of a sample in the order of ``keys``; raise FeedError if its structure differs."""
        structure = structure_of(sample)
        if structure.kind is not self.kind or set(structure.keys) != set(self.keys):
            raise FeedError(
                f"a sample is {structure}; the samples before it were {self}. Give all samples the same structure"
            )
        return [np.asarray(part) for part in _parts(sample, self)]

    def join(self, arrays: Sequence[NDArray[Any]]) -> Any:
        """Return a sample made of ``arrays``; the inverse of ``split``."""
        if self.kind is dict:
            return dict(zip(self.keys, arrays, strict=True))
        return tuple(arrays) if self.kind is tuple else arrays[0]

    def name(self, position: int) -> str:
        """Return how messages name the array at ``position``."""
        key = self.keys[position]
        return {dict: f"'{key}'", tuple: f"item {key}", np.ndarray: "the array"}[self.kind]

    def __str__(self) -> str:
        names = ", ".join(self.keys)
        return {dict: f"a dict of {names}", tuple: f"a tuple of {len(self.keys)}", np.ndarray: "one array"}[self.kind]


def structure_of(sample: Any) -> SampleStructure:
    """Return the structure of a sample; a list of arrays counts as a tuple, a list of numbers as an array."""
    if isinstance(sample, Mapping):
        structure = SampleStructure(dict, tuple(str(key) for key in sample))
    elif isinstance(sample, tuple) or (isinstance(sample, list) and any(hasattr(part, "shape") for part in sample)):
        structure = SampleStructure(tuple, tuple(str(position) for position in range(len(sample))))
    else:
        return SampleStructure(np.ndarray, ("",))
    if not structure.keys:
        raise FeedError("a sample is empty; give an array, or a tuple or dict of arrays")
    if any(isinstance(part, Mapping | tuple) for part in _parts(sample, structure)):
        raise FeedError("Nested list/tuple input shapes are not supported: give one flat tuple or dict of arrays")
    return structure


def _parts(sample: Any, structure: SampleStructure) -> list[Any]:
    if structure.kind is dict:
        named = {str(key): part for key, part in sample.items()}
        return [named[key] for key in structure.keys]
    return list(sample) if structure.kind is tuple else [sample]
