"""Loading: this instance's samples of a batch, loaded and collated with random numbers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ipu_emu.poptorch.data.sample_randomness import WrappedSamples


@dataclass(frozen=True)
class Part:
    """The samples of an instance in a batch that begins with sample ``start`` of the epoch, by place and index."""

    start: int
    places: Sequence[int]
    indices: Sequence[Any]


class Loading(WrappedSamples):
    """A data set of batches: ``collate`` puts the ``size`` samples of a micro-batch of a replica together."""

    def __init__(self, samples: Any, collate: Any, size: int, name: tuple[int, int]) -> None:
        super().__init__(samples)
        self._collate, self._size, self._name = collate, size, name

    def __getitem__(self, part: Part) -> Any:
        names = [(*self._name, part.start + place) for place in part.places]
        named = list(zip(names, part.indices, strict=True))
        with self._of_samples(self._collate).restored():
            samples = self._load(named, at_once=self._size)
            if self._collate is torch.utils.data.default_collate:
                return self._collate(samples)
            starts = range(0, len(samples), self._size)
            return _joined([self._collated(names[start], samples[start : start + self._size]) for start in starts])

    def _collated(self, name: tuple[int, ...], samples: list[Any]) -> Any:
        self._of_samples().seed(*name, "batch")
        return self._collate(samples)


def _joined(batches: Sequence[Any]) -> Any:
    """Join the tensors of micro-batches along their first axis."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: _joined([batch[name] for batch in batches]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_joined(column) for column in zip(*batches, strict=True))
    if not isinstance(first, torch.Tensor):
        return first
    shapes = {tuple(batch.shape[1:]) if batch.dim() else None for batch in batches}
    if None in shapes or len(shapes) > 1:
        raise ValueError(
            "collate_fn gives micro-batches with the shapes "
            f"{', '.join(str(list(batch.shape)) for batch in batches)}; give all of them the same shape, with the "
            "samples on the first axis"
        )
    return torch.cat(list(batches))
