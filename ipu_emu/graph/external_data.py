"""External data: initializers whose data are in a separate file, at an offset in the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import dtype_numbered, dtype_of
from popdist_py.files.atomic_write import append_to_file, change_file, replace_file
from popdist_py.files.bounded_read import open_regular

__all__ = [
    "DataPlace",
    "Places",
    "append_external",
    "array_in",
    "check_files",
    "contiguous",
    "overwrite_external",
    "places_beside",
    "places_of",
    "reference",
    "resolve",
    "write_external",
]


@dataclass(frozen=True)
class DataPlace:
    """``length`` bytes from ``offset`` of ``file``, whose path is absolute or relative to the working directory."""

    file: str
    offset: int
    length: int


#: Places of initializers by id.
Places = Mapping[str, DataPlace]


def contiguous(data: Mapping[str, NDArray[np.generic]], ids: Sequence[str], file: str, offset: int = 0) -> Places:
    """Return the places of initializers that are in ``file`` one after the other from ``offset``."""
    places = {}
    for id in ids:
        places[id] = DataPlace(file, offset, data[id].nbytes)
        offset += data[id].nbytes
    return places


def places_of(model: onnx.ModelProto) -> dict[str, DataPlace]:
    """Return the places of all initializers with external data."""
    protos = (proto for proto in model.graph.initializer if proto.data_location == onnx.TensorProto.EXTERNAL)
    return {proto.name: _place(proto) for proto in protos}


def _place(proto: onnx.TensorProto) -> DataPlace:
    entries = {entry.key: entry.value for entry in proto.external_data}
    nbytes = prod(proto.dims) * dtype_numbered(proto.data_type).itemsize
    if not entries.get("location"):
        raise _unreadable(proto.name, "its external data name no file: 'location' is missing")
    numbers = {}
    for key, default in (("offset", 0), ("length", nbytes)):
        try:
            numbers[key] = int(entries.get(key, default))
        except ValueError:
            raise _unreadable(proto.name, f"the {key} '{entries[key][:40]}' is not a whole number") from None
    return DataPlace(entries["location"], **numbers)


def _unreadable(id: str, why: object) -> EmulatorError:
    said = f"{why.filename}: {why.strerror}" if isinstance(why, OSError) and why.filename else why
    return EmulatorError(f"Initializer '{id}' cannot be read from its file: {said}")


def reference(id: str, array: NDArray[np.generic], place: DataPlace) -> onnx.TensorProto:
    """Return the initializer ``id`` of the type and shape of ``array`` whose data are at ``place``."""
    proto = onnx.TensorProto(name=id, data_type=dtype_of(array).onnx, dims=array.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": place.file, "offset": str(place.offset), "length": str(place.length)}
    proto.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    return proto


def array_in(proto: onnx.TensorProto) -> NDArray[np.generic]:
    """Read an initializer from its file."""
    place, dtype = _place(proto), dtype_numbered(proto.data_type)
    check_files({proto.name: place})
    count, start = prod(proto.dims), place.offset
    try:
        with os.fdopen(open_regular(place.file), "rb") as file:
            there = os.fstat(file.fileno()).st_size - start
            if min(start, there, *proto.dims) < 0 or count * dtype.itemsize > there:
                raise ValueError(f"{dtype} {list(proto.dims)} is not within the file at byte {start}")
            return np.fromfile(file, dtype.numpy, count, offset=start).reshape(tuple(proto.dims))
    except (OSError, ValueError) as error:
        raise _unreadable(proto.name, error) from error


def check_files(places: Places) -> None:
    """Raise EmulatorError if a file does not exist."""
    for id, place in places.items():
        if not os.path.exists(place.file):
            raise EmulatorError(f"Unrecognised file name '{place.file}' for externally stored tensor '{id}'")


def write_external(data: Mapping[str, NDArray[np.generic]], ids: Sequence[str], file: str) -> Places:
    """Write the data of initializers to a new file and return their places; raise EmulatorError if that fails."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(file))):
        raise EmulatorError(f"Saving tensor data to file {file}, but its parent directory does not exist")
    try:
        replace_file(file, *(_bytes(data[id]) for id in ids))
    except OSError as error:
        raise _unwritable(file, error) from error
    return contiguous(data, ids, file)


def append_external(data: Mapping[str, NDArray[np.generic]], ids: Sequence[str], file: str) -> Places:
    """Append the data of initializers to ``file`` and return their places; raise EmulatorError if that fails."""
    try:
        start = append_to_file(file, *(_bytes(data[id]) for id in ids))
    except OSError as error:
        raise _unwritable(file, error) from error
    return contiguous(data, ids, file, start)


def overwrite_external(data: Mapping[str, NDArray[np.generic]], places: Places) -> None:
    """Replace the data at ``places``, of each file all or nothing; raise EmulatorError if one cannot be written."""
    check_files(places)
    for file in dict.fromkeys(place.file for place in places.values()):
        pieces = ((place.offset, _bytes(data[id])) for id, place in places.items() if place.file == file)
        try:
            change_file(file, pieces)
        except OSError as error:
            raise _unwritable(file, error) from error


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _unwritable(file: str, error: OSError) -> EmulatorError:
    return EmulatorError(f"Cannot write the initializers '{file}': {error.strerror}; name a file that can be written")


def places_beside(model: str | os.PathLike[str], places: Places) -> Places:
    """Return ``places`` as stored in the file ``model``: relative to its folder if inside it, as ONNX requires."""
    folder = os.path.dirname(os.path.abspath(model))
    return {id: replace(place, file=_seen_from(folder, place.file)) for id, place in places.items()}


def _seen_from(folder: str, file: str) -> str:
    relative = os.path.relpath(file, folder)
    return os.path.abspath(file) if relative.startswith("..") else relative


def resolve(protos: Iterable[onnx.TensorProto], folder: str) -> None:
    """Resolve the references of a model in ``folder`` to files, relative to the working directory or to it."""
    for proto in protos:
        for entry in proto.external_data:
            beside = os.path.join(folder, entry.value)
            if entry.key == "location" and not os.path.isfile(entry.value) and os.path.isfile(beside):
                entry.value = beside
