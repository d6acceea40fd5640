"""DataLoader: PyTorch's loader, with batches for a whole step: batch_size x D x A x R / G samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DistributedSampler, IterableDataset, Sampler, TensorDataset

from ipu_emu.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_emu.poptorch.data.sample_randomness import Draws, SeededOrder, SeededSamples
from ipu_emu.poptorch.data.watched_workers import watched_epoch
from ipu_emu.poptorch.enums import DataLoaderMode
from ipu_emu.poptorch.errors import refusal
from ipu_emu.poptorch.options.option_group import of_kind
from ipu_emu.poptorch.options.options import Options


class _Joined:
    """Joins the indices of several batches of the program's own sampler."""

    def __init__(self, sampler: Any, count: int) -> None:
        self._sampler, self._count = sampler, count

    def __len__(self) -> int:
        return len(self._sampler) // self._count

    def __iter__(self) -> Iterator[list[int]]:
        waiting: list[list[int]] = []
        for batch in self._sampler:
            waiting.append(list(batch))
            if len(waiting) == self._count:
                yield [index for indices in waiting for index in indices]
                waiting = []


class DataLoader(torch.utils.data.DataLoader):
    """The batches of ``dataset`` for models with these options; with several processes, this one's part."""

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Mapping[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(options, Options):
            raise AssertionError(f"Unexpected type {type(options)}. Expected poptorch.Options")
        of_kind(mode, DataLoaderMode)
        options._freeze()
        self._rejoined = None if batch_sampler is not None or not self._rebatches(mode, drop_last) else drop_last
        self._options, self._accessor = options, None
        self._draws: Draws | None = None
        self._combined_batch_size: int | None = None if batch_size is None else batch_size * options.batches
        processes = options.Distributed.numProcesses
        iterable = isinstance(dataset, IterableDataset)
        kwargs["persistent_workers"] = num_workers > 0 if persistent_workers is None else persistent_workers
        if async_options and mode is DataLoaderMode.Sync:
            warnings.warn("async_options have no effect in DataLoaderMode.Sync", stacklevel=2)
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or (processes > 1 and auto_distributed_partitioning):
                raise refusal(
                    "batch_sampler excludes batch_size, shuffle and auto_distributed_partitioning: give it alone"
                )
            kwargs["batch_sampler"] = _Joined(batch_sampler, options.batches)
            self._combined_batch_size = None
            super().__init__(dataset, num_workers=num_workers, **kwargs)
        else:
            worker_size = self._worker_size(mode, drop_last, rebatched_worker_size)
            streamed = iterable and batch_size is not None
            self._check_division(kwargs.get("sampler"), streamed=streamed, divided=auto_distributed_partitioning)
            if batch_size is not None and not iterable and (processes == 1 or auto_distributed_partitioning):
                order = self._order(dataset, kwargs.get("sampler"), shuffle=bool(shuffle))
                if order is not None:
                    kwargs["sampler"], shuffle = self._part_of(order, drop_last=drop_last), None
            self._warn_of_remainder(dataset, iterable=iterable, drop_last=drop_last, mode=mode)
            if batch_size is not None:
                kwargs["drop_last"] = drop_last and not self._rebatches(mode, drop_last)
            super().__init__(dataset, batch_size=worker_size, shuffle=shuffle, num_workers=num_workers, **kwargs)
        self._seed = torch.initial_seed() if options.random_seed is None else options.random_seed
        if not iterable and type(dataset) is not TensorDataset and (processes > 1 or options.random_seed is not None):
            self._draws = Draws(super()._index_sampler)
        if mode is not DataLoaderMode.Sync:
            settings = dict(async_options or {})
            if self._rebatches(mode, drop_last):
                settings |= {"rebatched_size": self._combined_batch_size, "drop_last": drop_last}
            self._accessor = AsynchronousDataAccessor(_Plain(self), **settings)

    def _rebatches(self, mode: DataLoaderMode, drop_last: bool) -> bool:
        return mode is DataLoaderMode.AsyncRebatched or (mode is DataLoaderMode.Async and not drop_last)

    def _worker_size(self, mode: DataLoaderMode, drop_last: bool, size: int | None) -> int | None:
        combined = self._combined_batch_size
        if size is None or combined is None:
            return combined
        if not self._rebatches(mode, drop_last):
            raise AssertionError("rebatched_worker_size needs DataLoaderMode.AsyncRebatched")
        if size > combined:
            raise AssertionError(f"rebatched_worker_size {size} must be at most the combined batch size {combined}")
        return size

    def _order(self, dataset: Any, sampler: Any, *, shuffle: bool) -> Permutations | SeededOrder | None:
        """Return the order of samples that all processes have in common; None: that of PyTorch's loader."""
        seed, several = self._options.random_seed, self._options.Distributed.numProcesses > 1
        if seed is None and several and (shuffle or sampler is not None):
            raise AssertionError(
                "When using auto_distributed_partitioning you must set poptorch.Options.randomSeed() to ensure "
                "tensors are in the same order in all processes."
            )
        if not several and (seed is None or not (shuffle or sampler is not None)):
            return None
        if sampler is not None:
            return SeededOrder(sampler, seed)
        return Permutations(len(dataset), seed if shuffle else None)

    def _part_of(self, order: Permutations | SeededOrder, *, drop_last: bool) -> PartSampler:
        """Return the samples of this process, in the order that all processes have in common."""
        assert self._combined_batch_size is not None
        processes, number = self._options.Distributed.numProcesses, self._options.Distributed.processId
        shifts = isinstance(order, Permutations) and order.shuffled
        size = self._combined_batch_size
        return PartSampler(order, len(order), size, number, processes, drop_last=drop_last, shifts=shifts)

    def _check_division(self, sampler: Any, *, streamed: bool, divided: bool) -> None:
        """Raise poptorch.Error for a DistributedSampler of other processes, or of data that are divided already.

        Raise AssertionError for ``streamed`` data, which have no order that could be ``divided``.
        """
        processes, number = self._options.Distributed.numProcesses, self._options.Distributed.processId
        if processes > 1 and streamed and divided:
            raise AssertionError(
                "auto_distributed_partitioning cannot divide an IterableDataset: give it "
                "auto_distributed_partitioning=False and divide the data in the data set"
            )
        if not isinstance(sampler, DistributedSampler):
            return
        if (sampler.num_replicas, sampler.rank) != (processes, number) or (divided and processes > 1):
            raise refusal(
                f"The DistributedSampler gives part {sampler.rank} of {sampler.num_replicas}, and this is process "
                f"{number} of {processes}, among which the loader divides the samples: leave the sampler out, or "
                "make it for these processes and set auto_distributed_partitioning=False"
            )

    def _get_iterator(self) -> Any:
        samples = self.dataset
        if self._draws is None:
            return super()._get_iterator()
        self.__dict__["dataset"] = SeededSamples(samples, self._seed)
        try:
            return super()._get_iterator()
        finally:
            self.__dict__["dataset"] = samples

    @property
    def _index_sampler(self) -> Any:
        return super()._index_sampler if self._draws is None else self._draws

    def _warn_of_remainder(self, dataset: Any, *, iterable: bool, drop_last: bool, mode: DataLoaderMode) -> None:
        combined = self._combined_batch_size
        if iterable or drop_last or combined is None or mode is not DataLoaderMode.Sync:
            return
        if len(dataset) % combined:
            warnings.warn(
                f"The number of elements in the dataset ({len(dataset)}) is not divisible by the number of elements "
                f"processed per step ({combined}) and drop_last=False. Switch to drop_last=True.",
                stacklevel=3,
            )

    def __len__(self) -> int:
        """The batches of one epoch."""
        size = self._combined_batch_size
        if self._rejoined is None or size is None or isinstance(self.dataset, IterableDataset):
            return int(super().__len__())
        return len(self.sampler) // size if self._rejoined else -(-len(self.sampler) // size)

    @property
    def combinedBatchSize(self) -> int | None:
        """The samples of one step of this process."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that determine the batches."""
        return self._options

    def terminate(self) -> None:
        """End the loading process, if there is one."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __iter__(self) -> Any:
        if self._accessor is not None:
            return iter(self._accessor)
        return watched_epoch(self) if self.num_workers else super().__iter__()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()


class _Plain:
    """A DataLoader without its accessor, for the loading process."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Any:
        return watched_epoch(self._loader)


class Permutations:
    """A permutation of the indices for each pass, the same in all processes; without a seed the indices in order."""

    def __init__(self, size: int, seed: int | None) -> None:
        self._size, self.shuffled = size, seed is not None
        self._generator = torch.Generator().manual_seed(seed or 0)

    def __len__(self) -> int:
        return self._size

    def __call__(self, number: int) -> Sequence[Any]:
        if not self.shuffled:
            return range(self._size)
        order: list[int] = torch.randperm(self._size, generator=self._generator).tolist()
        return order


class PartSampler(Sampler):
    """The indices of process ``number`` of ``count``, of those that ``order`` gives for each pass.

    With ``drop_last`` every process owns the same whole number of batches; if it also ``shifts``, every second pass
    is shifted, so that samples left out of one pass are used in the next.
    """

    def __init__(
        self,
        order: Callable[[int], Sequence[Any]],
        size: int,
        combined: int,
        number: int,
        count: int,
        *,
        drop_last: bool,
        shifts: bool,
    ) -> None:
        self._order, self._size, self._shifts = order, size, shifts and drop_last
        self._passes = 0
        if drop_last:
            self.share = combined * (size // (combined * count))
            self.start = number * self.share
            return
        base, rest = divmod(size, count)
        self.share = base + (number < rest)
        self.start = number * base + min(number, rest)

    def __len__(self) -> int:
        return self.share

    def __iter__(self) -> Iterator[Any]:
        order = self._order(self._passes)
        start = self.start
        if self._shifts and self.share and not self._passes % 2:
            start += self._size % self.share
        self._passes += 1
        return iter(order[start : start + self.share])
