"""Sample preparation: copies a sample into a slot, unchanged, by transforms, or by a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.sample_structure import Field, SampleStructure, structure_of

_FIRST_ROW = np.zeros(1, np.int64)


class Transform(Protocol):
    """Compiled preparation of one array of many samples in one call, straight into a slot, without the GIL."""

    def field(self, field: Field) -> Field:
        """Return the field of the result for the field of a sample; raise FeedError if it cannot be prepared."""

    def apply(
        self, source: NDArray[Any], rows: NDArray[np.int64], keys: NDArray[np.uint64], out: NDArray[Any]
    ) -> None:
        """Write the prepared ``source[rows]`` to ``out``; ``keys`` holds one random number per sample."""


class FieldTransforms:
    """Preparation by field: each array of a sample is copied, or goes through its own transform."""

    def __init__(self, sample: Any, transforms: Mapping[str, Transform]) -> None:
        self.source = structure_of(sample)
        self.structure = self.source
        unknown = set(transforms) - set(self.structure.keys)
        if unknown:
            raise FeedError(
                f"prepare names {', '.join(sorted(unknown))}, but a sample is {self.structure}; use its names"
            )
        self._transforms = [transforms.get(key) for key in self.structure.keys]
        self._found = [Field.of(array) for array in self.structure.split(sample)]
        self.fields = [
            transform.field(field) if transform else field
            for transform, field in zip(self._transforms, self._found, strict=True)
        ]

    def write(self, sample: Any, key: NDArray[np.uint64], out: Sequence[NDArray[Any]], row: int) -> None:
        """Prepare one sample into row ``row`` of the arrays of a slot."""
        for position, array in enumerate(self.source.split(sample)):
            _check(array, self._found[position], self.structure.name(position))
            transform = self._transforms[position]
            if transform is None:
                out[position][row] = array
            else:
                transform.apply(array[None], _FIRST_ROW, key, out[position][row : row + 1])

    def write_rows(
        self,
        arrays: Sequence[NDArray[Any]],
        rows: NDArray[np.int64],
        keys: NDArray[np.uint64],
        out: Sequence[NDArray[Any]],
    ) -> None:
        """Prepare many rows of arrays at once."""
        for array, transform, slot in zip(arrays, self._transforms, out, strict=True):
            if transform is not None:
                transform.apply(array, rows, keys, slot)
            else:
                # Without a mode numpy fills a buffer first; the rows are in range.
                np.take(array, rows, axis=0, out=slot, mode="clip")

    @property
    def copies(self) -> bool:
        """Whether samples are copied unchanged."""
        return all(transform is None for transform in self._transforms)

    @property
    def random(self) -> bool:
        """Whether preparation needs random numbers."""
        return not self.copies


class PreparationFunction:
    """Preparation by the user: ``prepare(sample)``, or ``prepare(sample, random)`` with a generator per sample."""

    def __init__(self, sample: Any, function: Callable[..., Any], key: NDArray[np.uint64]) -> None:
        self._function = function
        self.random = _takes_two(function)
        prepared = self._call(sample, key)
        self.structure: SampleStructure = structure_of(prepared)
        self.fields = [Field.of(array) for array in self.structure.split(prepared)]

    def write(self, sample: Any, key: NDArray[np.uint64], out: Sequence[NDArray[Any]], row: int) -> None:
        """Prepare one sample into row ``row`` of the arrays of a slot."""
        for position, array in enumerate(self.structure.split(self._call(sample, key))):
            _check(array, self.fields[position], self.structure.name(position))
            out[position][row] = array

    def _call(self, sample: Any, key: NDArray[np.uint64]) -> Any:
        if not self.random:
            return self._function(sample)
        return self._function(sample, np.random.Generator(np.random.Philox(key=int(key[0]))))


SamplePreparation = FieldTransforms | PreparationFunction


def preparation_of(prepare: Any, sample: Any, key: NDArray[np.uint64]) -> SamplePreparation:
    """Return the preparation for None, one transform, transforms by name or position, or a function."""
    if prepare is None:
        return FieldTransforms(sample, {})
    if isinstance(prepare, Mapping):
        return FieldTransforms(sample, {str(name): transform for name, transform in prepare.items()})
    if isinstance(prepare, tuple):
        return FieldTransforms(
            sample, {str(at): transform for at, transform in enumerate(prepare) if transform is not None}
        )
    if hasattr(prepare, "apply") and hasattr(prepare, "field"):
        return FieldTransforms(sample, {"": prepare})
    if callable(prepare):
        return PreparationFunction(sample, prepare, key)
    raise FeedError(
        f"prepare is a {type(prepare).__name__}; give a function, a transform, or a dict of transforms by array name"
    )


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False
    needed = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 2


def _check(array: NDArray[Any], field: Field, name: str) -> None:
    if array.shape != field.shape or array.dtype != field.dtype:
        raise FeedError(
            f"{name} of a sample is {Field(array.dtype, array.shape)}; the first sample's is {field}. Give all "
            "samples the same shape and type: crop, pad or convert in prepare"
        )
