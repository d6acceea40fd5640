"""Batches: the samples of each weight update in an order that is the same on all instances, and this instance's part.

    one batch, accumulation 2, 4 replicas, 2 samples each       samples 0 to 15
    micro-batch 0    replica 0: 0 1   replica 1: 2 3   replica 2: 4 5   replica 3: 6 7
    micro-batch 1    replica 0: 8 9   ...

However replicas are spread over instances, each computes on the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset

__all__ = ["Batches", "Spread", "batches_of"]

_USUAL_SIZE = 32


@dataclass(frozen=True)
class Spread:
    """``size`` samples over ``accumulation`` micro-batches and ``replicas``, ``local`` of them on this instance."""

    size: int
    accumulation: int = 1
    replicas: int = 1
    offset: int = 0
    local: int = 1

    def own(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the samples of this instance's replicas, out of those of a whole batch along axis 0."""
        parts = samples.reshape(self.accumulation, self.replicas, -1, *samples.shape[1:])
        return parts[:, self.offset : self.offset + self.local].flatten(0, 2)


@dataclass(frozen=True)
class Batches:
    """``count`` batches per epoch, None if unknown; ``epoch`` yields this instance's part of each batch.

    ``size`` is the number of samples of a batch.
    """

    size: int
    count: int | None
    epoch: Callable[[Spread, int, int], Iterator[Any]]


def batches_of(data: Any, size: int | None, *, shuffle: bool | None, seed: int) -> Batches:
    """Return the batches of tensors, of a data set, of a data loader, or of an iterable of batches.

    Samples at the end of an epoch that do not fill a batch are not used. Raise ValueError or TypeError for data
    without a batch.
    """
    if size is not None and size < 1:
        raise ValueError(f"batch_size = {size}; use at least 1")
    if isinstance(data, torch.Tensor):
        data = (data,)
    if isinstance(data, tuple) and data and all(isinstance(item, torch.Tensor) for item in data):
        data = TensorDataset(*_equally_long(data))
    _refuse_arrays(data)
    if isinstance(data, DataLoader):
        return _of_loader(data, size, shuffle=shuffle, seed=seed)
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        return _of_iterable(data, size)
    return _of_samples(data, _USUAL_SIZE if size is None else size, _Order(shuffle is not False, seed), {})


def _equally_long(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    shapes = [list(tensor.shape) for tensor in tensors]
    if not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"data has tensors of the shapes {', '.join(map(str, shapes))}; give tensors with the same number of "
            "samples on their first axis"
        )
    return tensors


def _refuse_arrays(data: Any) -> None:
    """Raise an error for sequences that cannot be samples: text, and arrays or lists instead of tensors."""
    if isinstance(data, str | bytes):
        raise TypeError(f"data is a {type(data).__name__}; give tensors, a data set or a torch.utils.data.DataLoader")
    if isinstance(data, tuple) and data and all(isinstance(item, torch.Tensor | np.ndarray | list) for item in data):
        kinds = ", ".join(type(item).__name__ for item in data)
        raise TypeError(f"data is a tuple of {kinds}; make each a tensor, as with torch.as_tensor")


@dataclass(frozen=True)
class _Order:
    shuffled: bool
    seed: int

    def of(self, count: int, epoch: int) -> torch.Tensor:
        if not self.shuffled:
            return torch.arange(count)
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))


def _of_samples(samples: Any, size: int, order: _Order, settings: Mapping[str, Any]) -> Batches:
    count = len(samples) // size
    if not len(samples):
        raise ValueError("there are no samples; give at least one batch")
    if not count:
        raise ValueError(f"there are {len(samples)} samples, and a batch has {size}; use a smaller batch_size")

    def epoch(spread: Spread, number: int, first: int) -> Iterator[Any]:
        chosen = order.of(len(samples), number)[: count * size].reshape(count, size)[first:]
        own = [spread.own(batch) for batch in chosen]
        if type(samples) is TensorDataset and not settings:
            return (tuple(tensor[batch] for tensor in samples.tensors) for batch in own)
        return iter(DataLoader(samples, batch_sampler=_Lists(own), **settings))

    return Batches(size, count, epoch)


class _Lists:
    """A batch sampler of given batches."""

    def __init__(self, batches: Sequence[torch.Tensor]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._batches)


def _of_loader(loader: Any, size: int | None, *, shuffle: bool | None, seed: int) -> Batches:
    sampler = loader.sampler
    usual = type(sampler) in (RandomSampler, SequentialSampler) and loader.batch_size is not None
    if not usual or getattr(sampler, "replacement", False) or isinstance(loader.dataset, IterableDataset):
        return _of_iterable(loader, size)
    if size is None:
        size = int(loader.batch_size)
    if shuffle is None:
        shuffle = isinstance(sampler, RandomSampler)
    settings = {"collate_fn": loader.collate_fn, "num_workers": loader.num_workers}
    settings |= {"worker_init_fn": loader.worker_init_fn, "timeout": loader.timeout}
    if type(loader.dataset) is TensorDataset and loader.collate_fn is torch.utils.data.default_collate:
        settings = {}
    return _of_samples(loader.dataset, size, _Order(shuffle, seed), settings)


def _of_iterable(data: Any, size: int | None) -> Batches:
    if not isinstance(data, Iterable) or isinstance(data, Iterator):
        raise TypeError(
            f"data is a {type(data).__name__}; give tensors, a data set, a torch.utils.data.DataLoader, or an object "
            "that yields the batches of an epoch whenever it is iterated"
        )
    if size is None:
        first = next(iter(data), None)
        if first is None:
            raise ValueError("data gives no batch")
        size = _length(first)
    expected = size

    def epoch(spread: Spread, number: int, first: int) -> Iterator[Any]:
        for index, batch in enumerate(data):
            if index >= first and _length(batch) == expected:
                yield _own(batch, spread)

    return Batches(size, len(data) if isinstance(data, Sized) else None, epoch)


def _parts(batch: Any) -> list[Any]:
    return list(
        batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else [batch]
    )


def _length(batch: Any) -> int:
    lengths = [len(item) for item in _parts(batch) if isinstance(item, torch.Tensor) and item.dim()]
    if not lengths:
        raise TypeError(
            f"a batch is a {type(batch).__name__} without tensors; yield tensors, tuples or dicts of them"
        )
    return lengths[0]


def _own(batch: Any, spread: Spread) -> Any:
    def part(item: Any) -> Any:
        return spread.own(item) if isinstance(item, torch.Tensor) and item.dim() else item

    if isinstance(batch, Mapping):
        return {name: part(item) for name, item in batch.items()}
    return tuple(part(item) for item in _parts(batch))
