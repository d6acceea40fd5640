"""ONNX files: the syntax of a model, in bytes or in a file, and where its external data are."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.external_data import Places, bytes_at, is_external, place_of
from ipu_emu.onnx.proto_parts import graphs_of, tensors_of
from ipu_emu.onnx.tensors import array_of
from ipu_emu.onnx.wire import without_large_data

__all__ = ["ModelBytes", "ParsedModel", "Source", "opset_of", "parsed"]

#: A model, its file, or an object with the attribute ``model_proto``, as PyTorch's exporter returns it.
Source = bytes | str | os.PathLike[str] | onnx.ModelProto

#: Opsets of ai.onnx; the newest is that of the onnx package.
_OLDEST, _DEFAULT = 6, 10


class ModelBytes(bytes):
    """A model whose external data this program itself has written to ``files``, wherever they are."""

    def __new__(cls, model: bytes, files: Collection[str] = ()) -> ModelBytes:
        made = super().__new__(cls, model)
        made.files = frozenset(map(os.path.realpath, files))
        return made

    files: frozenset[str]


@dataclass(frozen=True)
class ParsedModel:
    """A model without the data of initializers that are ``large`` or at ``places`` in other files."""

    proto: onnx.ModelProto
    large: Mapping[str, NDArray[Any]]
    places: Places

    def initializers(self) -> dict[str, NDArray[Any]]:
        """Return the data of initializers by id, in order."""
        return {proto.name: self._data(proto) for proto in self.proto.graph.initializer}

    def _data(self, proto: onnx.TensorProto) -> NDArray[Any]:
        # If two initializers have one name, the last one counts, which kept its data.
        if proto.name in self.large and not (proto.raw_data or proto.float_data or proto.int32_data):
            array = self.large[proto.name]
            return array if array.flags.writeable else np.array(array)  # else it is a view of the model
        return array_of(proto, self.places.get(proto.name) if is_external(proto) else None)


def parsed(source: Source, *, light: bool = True) -> ParsedModel:
    """Parse a model, with ``light`` without large data; raise EmulatorError for anything else, and for bad places."""
    proto = getattr(source, "model_proto", source)
    if isinstance(proto, onnx.ModelProto):
        source = proto.SerializeToString()
    file = os.fspath(source) if isinstance(source, str | os.PathLike) and os.path.isfile(source) else None
    try:
        model, large = _syntax(source, file, light)
    except Exception as error:  # protobuf has no public base class for its parse errors
        raise EmulatorError(_unreadable(source)) from error
    if not model.HasField("graph"):
        raise EmulatorError(_unreadable(source))
    _check_opset(opset_of(model))
    model = onnx.inliner.inline_local_functions(model) if model.functions else model
    folder = os.path.dirname(os.path.abspath(file)) if file else os.getcwd()
    return ParsedModel(model, large, _places(model, folder, source.files if isinstance(source, ModelBytes) else ()))


def _syntax(source: Any, file: str | None, light: bool) -> tuple[onnx.ModelProto, Mapping[str, NDArray[Any]]]:
    if file is not None and _starts_with_zero(file):
        raise ValueError("a file of zeros")
    if file is None:
        data = os.fsencode(source) if isinstance(source, str | os.PathLike) else bytes(source)
    else:
        data = Path(file).read_bytes() if light else b""
    data, large = without_large_data(data) if light else (data, {})
    if file is None or large:
        return onnx.load_model_from_string(data), large
    return onnx.load(file, load_external_data=False), large  # in the format that ONNX derives from the file name


def _starts_with_zero(file: str) -> bool:
    """Whether the first byte shows that a file is not an ONNX model; such a file may be of any size."""
    with suppress(OSError), open(file, "rb") as stream:
        return stream.read(1) == b"\0"
    return False


def _places(model: onnx.ModelProto, folder: str, own: Collection[str]) -> Places:
    """Return the places of initializers, and load the external data of all other tensors."""
    for number, graph in enumerate(graphs_of(model.graph)):
        for proto in islice(tensors_of(graph), 0 if number else len(graph.initializer), None):
            if is_external(proto):
                proto.raw_data = bytes_at(proto, place_of(proto, folder, own)).tobytes()
                proto.ClearField("external_data")
                proto.ClearField("data_location")
    return {proto.name: place_of(proto, folder, own) for proto in model.graph.initializer if is_external(proto)}


def _unreadable(source: object) -> str:
    text = source.decode(errors="replace") if isinstance(source, bytes | bytearray) else str(source)
    shown = text if len(text) <= 200 else text[:200] + "..."
    return (
        f"Failed to load a ModelProto from the string '{shown}'.\n"
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx ModelProto string."
    )


def opset_of(model: onnx.ModelProto) -> int:
    """Return the ai.onnx opset of a model."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), _DEFAULT)


def _check_opset(version: int) -> None:
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST <= version <= newest:
        raise EmulatorError(
            f"Encountered ONNX opset version {version}, Maximimum supported opset is {newest}, minimum {_OLDEST} and "
            f"default {_DEFAULT}."
        )
