"""External data: initializers whose data are in a separate file, in the folder of the model or below it."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, MissingDataError
from ipu_emu.graph.dtype import dtype_numbered
from popdist_py.files.atomic_write import change_file, followed, replace_file
from popdist_py.files.bounded_read import open_regular, without_links

Data = Mapping[str, NDArray[Any]]

#: Digits of the size of the largest file.
_MOST_DIGITS = 19


@dataclass(frozen=True)
class DataPlace:
    """``length`` bytes from ``offset`` of ``file``."""

    file: str
    offset: int
    length: int


#: Places of initializers by id.
Places = Mapping[str, DataPlace]


def is_external(proto: onnx.TensorProto) -> bool:
    """Whether the data of a tensor are in a separate file."""
    return bool(proto.data_location == onnx.TensorProto.EXTERNAL)


def size_of(proto: onnx.TensorProto) -> int:
    """Return the number of elements of a tensor; raise EmulatorError for a negative size."""
    if min(proto.dims, default=0) < 0:
        raise EmulatorError(f"Initializer '{proto.name}' has the shape {list(proto.dims)}; no size can be negative")
    return prod(proto.dims)


def stored_type(proto: onnx.TensorProto) -> np.dtype[Any]:
    """Return the type of the stored elements of a tensor."""
    is_brain = proto.data_type == onnx.TensorProto.BFLOAT16
    return np.dtype(ml_dtypes.bfloat16) if is_brain else dtype_numbered(proto.data_type).numpy


# Reading


def place_of(proto: onnx.TensorProto, folder: str, own: Collection[str] = ()) -> DataPlace:
    """Return the place of external data of a model in ``folder``, whose file has no link in its path.

    Raise EmulatorError if the file is neither in the folder or below it nor one of ``own``, or the entries are wrong.
    """
    entries = {entry.key: entry.value for entry in proto.external_data}
    nbytes = size_of(proto) * stored_type(proto).itemsize
    if not entries.get("location"):
        raise _unreadable(proto, "its external data name no file: 'location' is missing")
    offset = _number(proto, "offset", entries.get("offset", "0"))
    length = _number(proto, "length", entries.get("length", str(nbytes)))
    if length != nbytes:
        shape = f"{stored_type(proto)} {list(proto.dims)}"
        raise _unreadable(proto, f"{shape} has {nbytes} bytes, and its length is given as {length}")
    return DataPlace(_file(proto, entries["location"], folder, own), offset, length)


def _number(proto: onnx.TensorProto, key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise _unreadable(proto, f"the {key} {text[:40]!r} is not a number of bytes")
    return int(text)


def _file(proto: onnx.TensorProto, location: str, folder: str, own: Collection[str]) -> str:
    """Resolve a location, which is relative to the folder as in ONNX, or to the working directory as in PopART."""
    try:
        paths = [os.path.join(folder, location), os.path.abspath(location)]
        path = next((path for path in paths if os.path.lexists(path)), paths[0])
        file = os.path.realpath(followed(path))
        is_allowed = file in own or inside(file, folder)
    except (OSError, ValueError) as error:
        raise _unreadable(proto, error) from error
    if not is_allowed:
        raise _unreadable(
            proto,
            f"its location {location[:200]!r} is not in the folder of the model, {folder!r} (of a model in bytes: "
            "the working directory); copy the file there, and name it relative to the model",
        )
    return file


def inside(file: str, folder: str) -> bool:
    """Whether the path ``file`` is in ``folder`` or below it, links resolved."""
    real = os.path.realpath(folder)
    return os.path.commonpath([real, os.path.realpath(file)]) == real


def _unreadable(proto: onnx.TensorProto, why: object) -> EmulatorError:
    said = (why.strerror or why) if isinstance(why, OSError) else why
    return EmulatorError(f"Initializer '{proto.name}' cannot be read from its file: {said}")


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array``, as FLOAT if it is BFLOAT16."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def array_at(proto: onnx.TensorProto, place: DataPlace) -> NDArray[Any]:
    """Read a tensor with external data; the array belongs to the caller."""
    if not os.path.exists(place.file):
        raise MissingDataError(proto.name, place.file)
    try:
        with (
            without_links(place.file) as path,
            os.fdopen(open_regular(path, os.O_NOFOLLOW), "rb", buffering=0) as file,
        ):
            if place.offset + place.length > os.fstat(file.fileno()).st_size:
                raise ValueError(f"{place.length} bytes from {place.offset} are not within {place.file!r}")
            data = np.fromfile(file, stored_type(proto), size_of(proto), offset=place.offset)
            return widened(data.reshape(tuple(proto.dims)))
    except (MemoryError, OSError, ValueError) as error:
        raise _unreadable(proto, error) from error


# Writing


def reference(id: str, dtype: np.dtype[Any], shape: Sequence[int], place: DataPlace) -> onnx.TensorProto:
    """Return the initializer ``id`` whose data are at ``place``."""
    proto = onnx.TensorProto(name=id, data_type=onnx.helper.np_dtype_to_tensor_dtype(dtype), dims=shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": place.file, "offset": str(place.offset), "length": str(place.length)}
    proto.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    return proto


def relative_places(model: str | os.PathLike[str], places: Places) -> Places:
    """Return ``places`` as the file ``model`` names them; raise EmulatorError for files outside of its folder."""
    folder = os.path.dirname(os.path.abspath(model))
    for id, place in places.items():
        if not inside(place.file, folder):
            raise EmulatorError(
                f"The data of '{id}' are in '{place.file}', which is not in the folder of '{model}', where readers "
                "of a model look for its data; save the model there, or its data here"
            )
    real = os.path.realpath(folder)
    return {id: replace(at, file=os.path.relpath(os.path.realpath(at.file), real)) for id, at in places.items()}


def separate(places: Places) -> Places:
    """Return the places that overlap no other: values there can be written separately."""
    ends: dict[str, int] = {}
    shared = set[str]()
    before = ""
    for id, place in sorted(places.items(), key=lambda item: (item[1].file, item[1].offset)):
        if place.offset < ends.get(place.file, 0):
            shared |= {id, before}
        if place.offset + place.length >= ends.get(place.file, 0):
            ends[place.file], before = place.offset + place.length, id
    return {id: place for id, place in places.items() if id not in shared}


def write_external(data: Data, ids: Iterable[str], file: str, *, follow: bool = True) -> Places:
    """Write the data of initializers to a new file and return their places; raise EmulatorError if that fails.

    Without ``follow`` a link at ``file`` is replaced.
    """
    if not os.path.isdir(os.path.dirname(os.path.abspath(file))):
        raise EmulatorError(f"Saving tensor data to file {file}, but its parent directory does not exist")
    ids = list(ids)
    with _writing(file):
        replace_file(file, *(_bytes(data[id]) for id in ids), follow=follow)
    return _contiguous(data, ids, file)


def append_external(data: Data, ids: Iterable[str], before: Places) -> Places:
    """Append the data of initializers to the file that has those ``before``, and return their places."""
    places = _contiguous(data, ids, *max((place.file, place.offset + place.length) for place in before.values()))
    change_external(data, {id: replace(place, file=os.path.realpath(place.file)) for id, place in places.items()})
    return places


def _contiguous(data: Data, ids: Iterable[str], file: str, offset: int = 0) -> Places:
    places = {}
    for id in ids:
        places[id] = DataPlace(file, offset, data[id].nbytes)
        offset += data[id].nbytes
    return places


def change_external(data: Data, places: Places) -> None:
    """Replace the data at ``places``, of each file all or nothing; raise EmulatorError if one cannot be written."""
    for id, place in places.items():
        if not os.path.exists(place.file):
            raise MissingDataError(id, place.file)
    for file in dict.fromkeys(place.file for place in places.values()):
        with _writing(file):
            change_file(file, ((at.offset, _bytes(data[id])) for id, at in places.items() if at.file == file))


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@contextmanager
def _writing(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
        why = "a symbolic link has taken its place" if is_link else error.strerror
        raise EmulatorError(
            f"Cannot write the initializers '{file}': {why}; name a file that can be written"
        ) from error
