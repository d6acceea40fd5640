"""Batches: the samples of each weight update in an order that is the same on all instances, and this instance's part.

    one batch, accumulation 2, 4 replicas, 2 samples each       samples 0 to 15
    micro-batch 0    replica 0: 0 1   replica 1: 2 3   replica 2: 4 5   replica 3: 6 7
    micro-batch 1    replica 0: 8 9   ...

However replicas are spread over instances, each computes on the same samples, and an instance loads only its own.
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

import popdist_py
from ipu_emu.poptorch.data.sample_randomness import Generators, SeededOrder, WrappedSamples, items_with_own_numbers

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

    Samples at the end of an epoch that do not fill a batch are not used. Random numbers that are drawn while samples
    are put in order and loaded depend on ``seed``, the epoch and the sample. Raise ValueError or TypeError for data
    without a batch, and for data that are not the same on all instances.
    """
    if size is not None and size < 1:
        raise ValueError(f"batch_size = {size}; use at least 1")
    if isinstance(data, torch.Tensor):
        data = (data,)
    if isinstance(data, tuple) and data and all(isinstance(item, torch.Tensor) for item in data):
        data = TensorDataset(*_equally_long(data))
    _refuse_arrays(data)
    if isinstance(data, DataLoader) and _is_sized(data.batch_sampler):
        return _of_loader(data, size, shuffle=shuffle, seed=seed)
    if isinstance(data, DataLoader | IterableDataset) or not hasattr(data, "__getitem__"):
        return _of_iterable(data, size, shuffle=shuffle, seed=seed)
    size = _USUAL_SIZE if size is None else size
    return _of_samples(data, size, _Shuffled(len(data), seed, shuffled=shuffle is not False), seed)


def _is_sized(items: Any) -> bool:
    """Whether items have a length; None, and the loader and the sampler of an IterableDataset have none."""
    try:
        return len(items) >= 0
    except TypeError:
        return False


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


# The order of samples


class _Shuffled:
    """All indices, shuffled by (seed, epoch) or in order."""

    def __init__(self, count: int, seed: int, *, shuffled: bool, stride: int = 1_000_003) -> None:
        self.count, self._seed, self._shuffled, self._stride = count, seed, shuffled, stride

    def __call__(self, epoch: int) -> Sequence[Any]:
        if not self._shuffled:
            return range(self.count)
        generator = torch.Generator().manual_seed(self._seed * self._stride + epoch)
        order: list[int] = torch.randperm(self.count, generator=generator).tolist()
        return order


class _Sampled:
    """What a sampler of the data loader gives, which is the same on all instances."""

    def __init__(self, loader: Any, sampler: Any, seed: int) -> None:
        generator = loader.generator if loader.generator is not None else getattr(sampler, "generator", None)
        chosen = None if generator is None else generator.initial_seed()
        self._kind, self.count = type(sampler).__name__, len(sampler)
        self._order = SeededOrder(sampler, seed, chosen, holder=generator)

    def __call__(self, epoch: int) -> Sequence[Any]:
        order = self._order(epoch)
        _check_same(lambda: repr(order).encode(), f"the sampler {self._kind} gives other samples")
        return order

    def first(self) -> Any:
        """Return the first item of the first epoch, or None."""
        return next(self._order.items(0), None)


def _instance() -> tuple[int, int]:
    """Return the number of this instance and that of all instances."""
    if not popdist_py.isPopdistEnvSet():
        return 0, 1
    return popdist_py.getInstanceIndex(), popdist_py.getNumInstances()


def _check_same(content: Callable[[], bytes], problem: str) -> None:
    """Raise ValueError on all instances if ``content`` is not the same on all of them."""
    if _instance()[1] == 1:
        return
    digest = int.from_bytes(hashlib.blake2b(content(), digest_size=7).digest(), "little")
    digests = popdist_py.allGather(np.int64(digest)).tolist()
    other = next((number for number, digest in enumerate(digests) if digest != digests[0]), None)
    if other is not None:
        raise ValueError(
            f"{problem} on instance {other} than on instance 0; give the data of the whole job on every instance, "
            "which are then divided"
        )


# Data with an index


def _of_loader(loader: Any, size: int | None, *, shuffle: bool | None, seed: int) -> Batches:
    settings = {name: getattr(loader, name) for name in ("num_workers", "worker_init_fn", "timeout")}
    settings |= {name: getattr(loader, name) for name in ("multiprocessing_context", "prefetch_factor")}
    loading = {"collate": loader.collate_fn, "drop_last": loader.drop_last, "settings": settings}
    if loader.batch_size is None:
        return _of_batch_sampler(loader, size, loading, shuffle=shuffle, seed=seed)
    sampler, size = loader.sampler, int(loader.batch_size) if size is None else size
    usual = type(sampler) in (RandomSampler, SequentialSampler) and len(sampler) == len(loader.dataset)
    if usual and not getattr(sampler, "replacement", False):
        shuffle = isinstance(sampler, RandomSampler) if shuffle is None else shuffle
        if shuffle and loader.generator is not None:
            seed += loader.generator.initial_seed() % 1_000_003
        return _of_samples(loader.dataset, size, _Shuffled(len(sampler), seed, shuffled=shuffle), seed, **loading)
    if shuffle is not None:
        raise ValueError(
            f"shuffle = {shuffle}, and the data loader has a {type(sampler).__name__}, which gives the order; leave "
            "shuffle out"
        )
    order: _Shuffled | _Sampled = _Sampled(loader, sampler, seed)
    if isinstance(sampler, DistributedSampler):
        order = _undistributed(sampler, size)
    return _of_samples(loader.dataset, size, order, seed, **loading)


def _undistributed(sampler: Any, size: int) -> _Shuffled:
    """The order of which a DistributedSampler gives every instance a part: the whole job's, as train divides it."""
    instance, instances = _instance()
    if (sampler.rank, sampler.num_replicas) != (instance, instances) or type(sampler) is not DistributedSampler:
        raise ValueError(
            f"the data loader has a {type(sampler).__name__} for part {sampler.rank} of {sampler.num_replicas}, and "
            f"this is instance {instance} of {instances}; leave the sampler out, as every batch is divided among all "
            "replicas"
        )
    if instances > 1:
        _warn(
            f"each batch of {size} samples is divided among {instances} instances; leave the DistributedSampler out"
        )
    return _Shuffled(len(sampler.dataset), sampler.seed + sampler.epoch, shuffled=sampler.shuffle, stride=1)


def _warn(text: str) -> None:
    if _instance()[0] == 0:
        warnings.warn(text, stacklevel=5)


def _of_samples(
    samples: Any, size: int, order: _Shuffled | _Sampled, seed: int, *, drop_last: bool = False, **loading: Any
) -> Batches:
    total = order.count
    if not total:
        raise ValueError("there are no samples; give at least one batch")
    if total < size:
        raise ValueError(f"there are {total} samples, and a batch has {size}; use a smaller batch_size")
    if total % size and not drop_last:
        _warn(
            f"{total % size} of {total} samples do not fill a batch of {size} and are not used in an epoch; use a "
            "batch_size that divides the number of samples, or a data loader with drop_last=True"
        )

    def epoch(spread: Spread, number: int, first: int) -> Iterator[Any]:
        indices = order(number)
        starts = range(first * size, len(indices) - size + 1, size)
        batches = [indices[start : start + size] for start in starts]
        return _loaded(samples, batches, spread, (seed, number), first, **loading)

    return Batches(size, total // size, epoch)


def _of_batch_sampler(
    loader: Any, size: int | None, loading: Mapping[str, Any], *, shuffle: bool | None, seed: int
) -> Batches:
    sampler, order = loader.batch_sampler, _Sampled(loader, loader.batch_sampler, seed)
    _refuse_shuffle(shuffle, type(sampler).__name__)
    if size is None:
        size = len(order.first() or ())
    if not size:
        raise ValueError("data gives no batch")
    more = {name: value for name, value in loading.items() if name != "drop_last"}

    def epoch(spread: Spread, number: int, first: int) -> Iterator[Any]:
        batches = order(number)
        own = [batch for batch in batches if len(batch) == size]
        _warn_of_lengths(len(batches) - len(own), size, number)
        return _loaded(loader.dataset, own[first:], spread, (seed, number), first, **more)

    return Batches(size, order.count, epoch)


def _warn_of_lengths(unused: int, size: int, epoch: int) -> None:
    if unused and not epoch:
        _warn(f"{unused} batches of an epoch are not used, as they do not have {size} samples")


def _loaded(
    samples: Any,
    batches: Sequence[Sequence[Any]],
    spread: Spread,
    name: tuple[int, int],
    first: int,
    *,
    collate: Any = torch.utils.data.default_collate,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """Yield this instance's part of each batch of indices, of which the first has the number ``first``."""
    places = spread.own(torch.arange(spread.size)).tolist()
    own = [[batch[place] for place in places] for batch in batches]
    if type(samples) is TensorDataset and collate is torch.utils.data.default_collate:
        return (tuple(tensor[batch] for tensor in samples.tensors) for batch in own)
    size = spread.size // (spread.accumulation * spread.replicas)
    parts = [Part(number * spread.size, places, batch) for number, batch in enumerate(own, first)]
    loading = Loading(samples, collate, size, name)
    return iter(DataLoader(loading, batch_size=None, sampler=parts, collate_fn=_as_it_is, **settings or {}))


def _as_it_is(batch: Any) -> Any:
    return batch


# Data without an index


def _refuse_shuffle(shuffle: bool | None, kind: str) -> None:
    if shuffle:
        raise ValueError(f"shuffle = True, and the order is that of a {kind}; leave shuffle out")


def _of_iterable(data: Any, size: int | None, *, shuffle: bool | None, seed: int) -> Batches:
    if not isinstance(data, Iterable) or isinstance(data, Iterator):
        raise TypeError(
            f"data is a {type(data).__name__}; give tensors, a data set, a torch.utils.data.DataLoader, or an object "
            "that yields the batches of an epoch whenever it is iterated"
        )
    _refuse_shuffle(shuffle, type(data).__name__)
    generators = Generators(data)
    if size is None:
        first = next(items_with_own_numbers(data, generators, seed, 0), None)
        if first is None:
            raise ValueError("data gives no batch")
        size = _length(first)
    expected = size

    def epoch(spread: Spread, number: int, first: int) -> Iterator[Any]:
        unused = 0
        for index, batch in enumerate(items_with_own_numbers(data, generators, seed, number)):
            if not index:
                _check_same(functools.partial(_content, batch), "data gives another first batch")
            if _length(batch) != expected:
                unused += 1
            elif index >= first:
                yield _own(batch, spread)
        _warn_of_lengths(unused, expected, number)

    sized: Any = data
    return Batches(size, len(sized) if _is_sized(sized) else None, epoch)


def _content(batch: Any) -> bytes:
    tensors = [tensor.contiguous().reshape(-1) for tensor in _parts(batch) if isinstance(tensor, torch.Tensor)]
    return b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors)


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
        if not isinstance(item, torch.Tensor) or not item.dim():
            return item
        if len(item) != spread.size and spread.accumulation * spread.replicas > 1:
            raise ValueError(
                f"a batch has tensors of {spread.size} and of {len(item)} samples, which cannot be divided among "
                "replicas and micro-batches; yield batches whose tensors have the same number of samples"
            )
        return spread.own(item)

    if isinstance(batch, Mapping):
        return {name: part(item) for name, item in batch.items()}
    return tuple(part(item) for item in _parts(batch))


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
