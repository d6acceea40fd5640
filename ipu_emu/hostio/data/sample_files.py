"""Sample files: .npy and .npz files, Arrow and Parquet tables, read as one sequence of samples.

``.npy`` files are memory-mapped: a file may be larger than memory. Tables are read through pyarrow
(``pip install poprun-py[arrow]``), mapped where the format allows it; each column becomes an array.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from popdist_py.files.bounded_read import open_regular

#: The content of a file: an array, or arrays by name.
_Content = NDArray[Any] | Mapping[str, NDArray[Any]]


class FileSequence:
    """The rows of several files, concatenated."""

    def __init__(self, parts: Sequence[_Content]) -> None:
        self._parts = parts
        self._ends = list(accumulate(_length(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, row: int) -> Any:
        file = bisect_right(self._ends, row)
        within = row - (self._ends[file - 1] if file else 0)
        part = self._parts[file]
        return {name: array[within] for name, array in part.items()} if isinstance(part, Mapping) else part[within]


def open_files(paths: str | Path | Sequence[str | Path]) -> _Content | FileSequence:
    """Open one file, several files, a pattern (``data/*.npy``) or all files of a folder, in the order of names."""
    patterns = [paths] if isinstance(paths, str | Path) else paths
    files = [file for path in patterns for file in _found(path)]
    parts = [_open(file) for file in files]
    for file, part in zip(files, parts, strict=True):
        if _kind(part) != _kind(parts[0]):
            raise FeedError(
                f"{file} holds {_text(part)}, but {files[0]} {_text(parts[0])}; give files of the same layout"
            )
    return parts[0] if len(parts) == 1 else FileSequence(parts)


def _found(path: str | Path) -> list[Path]:
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _READERS)
    else:
        files = [path] if path.exists() else [Path(name) for name in sorted(glob.glob(str(path)))]
    if not files:
        raise FeedError(f"{path}: no such file, folder or pattern with {', '.join(_READERS)} files")
    return files


def _open(file: Path) -> _Content:
    if file.suffix not in _READERS:
        raise FeedError(f"{file}: a feed reads {', '.join(_READERS)}; convert the file to one of these")
    try:
        os.close(open_regular(file))
        content = _READERS[file.suffix](file)
        scalars = [name for name, array in _named(content).items() if array.ndim == 0]
    except FeedError:
        raise
    except Exception as error:  # readers raise any exception for a damaged file
        why = error.strerror if isinstance(error, OSError) and error.strerror else error or type(error).__name__
        raise FeedError(f"{file} could not be read: {why}") from error
    if scalars or not _named(content):
        raise FeedError(
            f"{file} has no rows{' in ' + scalars[0] if any(scalars) else ''}; a feed needs arrays of samples"
        )
    return content


def _npy(file: Path) -> _Content:
    _check_magic(file, b"\x93NUMPY")
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(_without_advice(error)) from None
    return array


def _npz(file: Path) -> _Content:
    _check_magic(file, b"PK")
    with np.load(file, allow_pickle=False) as archive:
        return {name: _member(archive, name) for name in archive.files}


def _member(archive: Any, name: str) -> NDArray[Any]:
    try:
        array = archive[name]
    except ValueError as error:
        raise ValueError(f"array '{name}': {_without_advice(error)}") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"'{name}' is not an array")
    return array


def _check_magic(file: Path, magic: bytes) -> None:
    """Raise ValueError for a file of another kind, which numpy would try to read as a pickle."""
    with file.open("rb") as stream:
        if stream.read(len(magic)) != magic:
            raise ValueError(f"it is no {file.suffix} file")


def _without_advice(error: ValueError) -> str:
    """Return numpy's message, except for Python objects, where numpy advises to allow pickles."""
    said = str(error)
    objects = "pickle" in said or "Python objects" in said
    return "it has Python objects, not numbers; save an array of numbers" if objects else said


def _arrow(file: Path) -> _Content:
    arrow = _pyarrow()
    with arrow.memory_map(str(file)) as mapped:
        try:
            table = arrow.ipc.open_file(mapped).read_all()
        except arrow.ArrowInvalid:
            mapped.seek(0)
            table = arrow.ipc.open_stream(mapped).read_all()
    return _columns(table)


def _parquet(file: Path) -> _Content:
    _pyarrow()
    import pyarrow.parquet

    return _columns(pyarrow.parquet.read_table(file, memory_map=True))


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise FeedError("Arrow and Parquet files need pyarrow; pip install 'poprun-py[arrow]'") from None
    return pyarrow


def _columns(table: Any) -> dict[str, NDArray[Any]]:
    """Return the columns: numbers, or lists of numbers of equal length (nested lists give a matrix per row)."""
    table.validate(full=True)  # reading a damaged file that is not validated can crash the process
    return {name: _column(name, table.column(name).combine_chunks()) for name in table.column_names}


def _column(name: str, column: Any) -> NDArray[Any]:
    rows, shape = len(column), []
    if column.null_count:
        raise FeedError(f"column '{name}' has {column.null_count} missing values; fill or drop these rows first")
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):
        length, rest = divmod(len(column.flatten()), max(len(column), 1))
        if rest or any(len(row) != length for row in column):
            raise FeedError(f"column '{name}' has lists of different lengths; a feed needs lists of equal length")
        shape.append(length)
        column = column.flatten()
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(rows, *shape)


_READERS: dict[str, Callable[[Path], _Content]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".parquet": _parquet,
}


def _length(part: _Content) -> int:
    return min(len(array) for array in part.values()) if isinstance(part, Mapping) else len(part)


def _kind(part: _Content) -> Any:
    """Return names, element types and row shapes, which must be equal in all files."""
    return {name: (array.dtype, array.shape[1:]) for name, array in _named(part).items()}


def _named(part: _Content) -> Mapping[str, NDArray[Any]]:
    return part if isinstance(part, Mapping) else {"": part}


def _text(part: _Content) -> str:
    return ", ".join(f"{name or 'rows of'} {dtype}{list(shape)}" for name, (dtype, shape) in _kind(part).items())
