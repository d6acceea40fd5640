"""Form: how the arrays of a sample are held together: one array, a tuple of arrays, or a dict of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError

__all__ = ["Field", "Form", "form_of"]


@dataclass(frozen=True)
class Field:
    """Element type and shape of one array of every sample."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: NDArray[Any]) -> Field:
        """The field of a sample's array; raise FeedError if it holds anything but numbers."""
        if array.dtype.kind not in "biufcV":
            raise FeedError(f"a sample holds {array.dtype} data; a feed carries numbers: convert it while preparing")
        return cls(array.dtype, array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Form:
    """``keys`` of a dict, positions of a tuple, or one empty key for a single array."""

    kind: Any
    keys: tuple[str, ...]

    def split(self, sample: Any) -> list[NDArray[Any]]:
        """The arrays of a sample in the order of ``keys``; raise FeedError if it has another form."""
        found = form_of(sample)
        if found.kind is not self.kind or set(found.keys) != set(self.keys):
            raise FeedError(f"a sample is {found}; those before were {self}. Give all samples one structure")
        return [np.asarray(part) for part in _parts(sample, self)]

    def join(self, arrays: Sequence[NDArray[Any]]) -> Any:
        """The opposite of ``split``."""
        if self.kind is dict:
            return dict(zip(self.keys, arrays, strict=True))
        return tuple(arrays) if self.kind is tuple else arrays[0]

    def name(self, position: int) -> str:
        """How messages call one of the arrays."""
        key = self.keys[position]
        return {dict: f"'{key}'", tuple: f"item {key}", np.ndarray: "the array"}[self.kind]

    def __str__(self) -> str:
        names = ", ".join(self.keys)
        return {dict: f"a dict of {names}", tuple: f"a tuple of {len(self.keys)}", np.ndarray: "one array"}[self.kind]


def form_of(sample: Any) -> Form:
    """The form of a sample; a list of arrays counts as a tuple, a list of numbers as an array."""
    if isinstance(sample, Mapping):
        form = Form(dict, tuple(str(key) for key in sample))
    elif isinstance(sample, tuple) or (isinstance(sample, list) and any(hasattr(part, "shape") for part in sample)):
        form = Form(tuple, tuple(str(position) for position in range(len(sample))))
    else:
        return Form(np.ndarray, ("",))
    if not form.keys:
        raise FeedError("a sample is empty; give an array, or a tuple or dict of arrays")
    if any(isinstance(part, Mapping | tuple) for part in _parts(sample, form)):
        raise FeedError("Nested list/tuple input shapes are not supported: give one flat tuple or dict of arrays")
    return form


def _parts(sample: Any, form: Form) -> list[Any]:
    if form.kind is dict:
        named = {str(key): part for key, part in sample.items()}
        return [named[key] for key in form.keys]
    return list(sample) if form.kind is tuple else [sample]
