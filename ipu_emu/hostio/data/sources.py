"""Sources: where samples come from: arrays in memory, things that are indexed, and things that are read one by one.

data                                                        source
array or memmap; tuple or dict of such, equally long        Arrays
path, or list of paths, of .npy, .npz, Arrow, Parquet       Arrays or Indexed (see files.py)
anything with a length and an index: list, torch Dataset    Indexed
function, generator, iterable, DataLoader, tf.data          Stream
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
from ipu_emu.hostio.data.sample_structure import Form, form_of

__all__ = ["Arrays", "Indexed", "Source", "Stream", "source_of"]


@dataclass(frozen=True)
class Arrays:
    """Samples are the rows of arrays that are equally long."""

    form: Form
    arrays: list[NDArray[Any]]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, row: int) -> Any:
        return self.form.join([array[row] for array in self.arrays])


@dataclass(frozen=True)
class Indexed:
    """Samples are ``data[0]`` to ``data[len(data) - 1]``."""

    data: Any

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        return self.data[row]


@dataclass(frozen=True)
class Stream:
    """Samples come one after the other; ``make`` begins from the first."""

    make: Callable[[], Iterator[Any]]
    #: A generator or iterator, which can be read once.
    once: bool = False
    #: Why a forked process cannot read it; empty if it can.
    threads_only: str = ""


Source = Arrays | Indexed | Stream


def source_of(data: Any) -> Source:
    """Find out what ``data`` is; raise FeedError if it is nothing that gives samples."""
    if isinstance(data, Arrays | Indexed | Stream):
        return data
    if isinstance(data, str | Path) or (isinstance(data, list) and data and isinstance(data[0], str | Path)):
        found = open_files(data)
        return _arrays(found) if isinstance(found, Mapping | np.ndarray) else Indexed(found)
    if isinstance(data, np.ndarray | Mapping | tuple) or _is_tensor(data):
        return _arrays(data)
    if _is_indexed(data):
        return Indexed(data)
    return _stream(data)


def _arrays(data: Any) -> Arrays:
    form = form_of(data)
    arrays = form.split(data)
    lengths = {form.name(position): len(array) if array.ndim else 0 for position, array in enumerate(arrays)}
    if min(lengths.values()) == 0:
        raise FeedError(f"The arrays of a feed hold samples along their first axis; found none in {lengths}")
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise FeedError(f"The arrays of a feed need equally many samples: {found}; cut the longer ones")
    return Arrays(form, arrays)


def _is_tensor(data: Any) -> bool:
    return hasattr(data, "__array__") and hasattr(data, "shape")


def _is_indexed(data: Any) -> bool:
    """torch's IterableDataset has an index operator that only raises."""
    streams = any(base.__name__ == "IterableDataset" for base in type(data).__mro__)
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not streams


def _stream(data: Any) -> Stream:
    if hasattr(data, "as_numpy_iterator"):
        return Stream(data.as_numpy_iterator, threads_only="TensorFlow's own threads do not survive a fork")
    if getattr(data, "num_workers", 0):
        return Stream(lambda: iter(data), threads_only="a DataLoader's workers cannot be started by another worker")
    if isinstance(data, Iterator):
        return Stream(lambda: data, once=True)
    if hasattr(data, "__iter__"):
        return Stream(lambda: iter(data))
    if callable(data):
        return Stream(lambda: iter(data()))
    raise FeedError(
        f"A feed was given a {type(data).__name__}; give arrays, a dataset with length and index, an iterable, or a "
        "function that returns one"
    )
