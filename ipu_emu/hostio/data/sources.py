"""Sources: where samples come from: arrays in memory, indexed data sets, and streams.

data                                                        source
array or memmap; tuple or dict of arrays of equal length    ArraySource
path, or list of paths, of .npy, .npz, Arrow, Parquet       ArraySource or IndexedSource (see sample_files)
anything with a length and an index: list, torch Dataset    IndexedSource
function, generator, iterable, DataLoader, tf.data          StreamSource
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.sample_files import open_files
from ipu_emu.hostio.data.sample_structure import SampleStructure, structure_of


@dataclass(frozen=True)
class ArraySource:
    """Samples are the rows of arrays of equal length."""

    structure: SampleStructure
    arrays: list[NDArray[Any]]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, row: int) -> Any:
        return self.structure.join([array[row] for array in self.arrays])


@dataclass(frozen=True)
class IndexedSource:
    """Samples are ``data[0]`` to ``data[len(data) - 1]``."""

    data: Any

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        return self.data[row]


@dataclass(frozen=True)
class StreamSource:
    """Samples are read one after the other; ``make`` returns an iterator that starts at the first."""

    make: Callable[[], Iterator[Any]]
    #: Whether the data can be read only once, as a generator or an iterator.
    once: bool = False
    #: Why forked processes cannot read the data; empty if they can.
    threads_only: str = ""


Source = ArraySource | IndexedSource | StreamSource


def source_of(data: Any) -> Source:
    """Return the source for ``data``; raise FeedError for a type that gives no samples."""
    if isinstance(data, ArraySource | IndexedSource | StreamSource):
        return data
    if isinstance(data, str | Path) or (isinstance(data, list) and data and isinstance(data[0], str | Path)):
        samples = open_files(data)
        return _arrays(samples) if isinstance(samples, Mapping | np.ndarray) else IndexedSource(samples)
    if isinstance(data, np.ndarray | Mapping | tuple) or _is_tensor(data):
        return _arrays(data)
    if _is_indexed(data):
        return IndexedSource(data)
    return _stream(data)


def _arrays(data: Any) -> ArraySource:
    structure = structure_of(data)
    arrays = structure.split(data)
    lengths = {structure.name(position): len(array) if array.ndim else 0 for position, array in enumerate(arrays)}
    if min(lengths.values()) == 0:
        raise FeedError(f"The first axis of the arrays of a feed counts samples; found no samples in {lengths}")
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise FeedError(
            f"The arrays of a feed must have the same number of samples: {counts}; shorten the longer ones"
        )
    return ArraySource(structure, arrays)


def _is_tensor(data: Any) -> bool:
    return hasattr(data, "__array__") and hasattr(data, "shape")


def _is_indexed(data: Any) -> bool:
    """Whether ``data`` has an index; torch's IterableDataset has an index operator that only raises."""
    streams = any(base.__name__ == "IterableDataset" for base in type(data).__mro__)
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not streams


def _stream(data: Any) -> StreamSource:
    if hasattr(data, "as_numpy_iterator"):
        return StreamSource(data.as_numpy_iterator, threads_only="TensorFlow's own threads do not survive a fork")
    if getattr(data, "num_workers", 0):
        return StreamSource(
            lambda: iter(data), threads_only="a DataLoader's workers cannot be started by another worker"
        )
    if isinstance(data, Iterator):
        return StreamSource(lambda: data, once=True)
    if hasattr(data, "__iter__"):
        return StreamSource(lambda: iter(data))
    if callable(data):
        return StreamSource(lambda: iter(data()))
    raise FeedError(
        f"A feed was given a {type(data).__name__}; give arrays, a dataset with length and index, an iterable, or a "
        "function that returns one"
    )
