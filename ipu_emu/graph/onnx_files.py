"""ONNX files: reads and writes models, and their data in external files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.external_data import resolve
from ipu_emu.graph.onnx_tensors import array_of
from ipu_emu.graph.protobuf_wire import without_large_data
from popdist_py.files.atomic_write import replace_file

__all__ = [
    "Large",
    "initializers_of",
    "load_light",
    "load_model",
    "opset_of",
    "write_model",
]

#: Opsets of ai.onnx; the newest is that of the onnx package.
_OLDEST, _DEFAULT = 6, 10

#: Data of large initializers by name.
Large = Mapping[str, np.ndarray]
_NONE: Large = MappingProxyType({})


def load_model(source: bytes | str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse a ModelProto from bytes or from a file; raise EmulatorError if ``source`` is neither."""
    return _loaded(source, light=False)[0]


def load_light(source: bytes | str | os.PathLike[str] | onnx.ModelProto) -> tuple[onnx.ModelProto, Large]:
    """Parse a ModelProto without the data of large initializers; return both."""
    return _loaded(source, light=True)


def _loaded(source: Any, *, light: bool) -> tuple[onnx.ModelProto, Large]:
    proto = getattr(source, "model_proto", source)  # PyTorch's exporter returns an object with this attribute
    if isinstance(proto, onnx.ModelProto):
        source = proto.SerializeToString()
    file = os.fspath(source) if isinstance(source, str | os.PathLike) and os.path.isfile(source) else None
    large: Large = _NONE
    if file is not None and _starts_with_zero(file):
        raise EmulatorError(_unreadable(source))
    try:
        if file is None:
            data = os.fsencode(source) if isinstance(source, str | os.PathLike) else bytes(source)
        else:
            data = Path(file).read_bytes() if light else b""
        if light:
            data, large = without_large_data(data)
        if file is None or large:
            model = onnx.load_model_from_string(data)
        else:  # in the format that ONNX derives from the file name
            model = onnx.load(file, load_external_data=False)
        if file is not None:
            _load_external(model, os.path.dirname(os.path.abspath(file)))
    except Exception as error:  # protobuf has no public base class for its parse errors
        raise EmulatorError(_unreadable(source)) from error
    if not model.HasField("graph"):
        raise EmulatorError(_unreadable(source))
    _check_opset(opset_of(model))
    return onnx.inliner.inline_local_functions(model) if model.functions else model, large


def _starts_with_zero(file: str) -> bool:
    """Whether the first byte shows that a file is not an ONNX model; such a file may be of any size."""
    with suppress(OSError), open(file, "rb") as stream:
        return stream.read(1) == b"\0"
    return False


def _load_external(model: onnx.ModelProto, folder: str) -> None:
    """Load the external data of constants in ``folder``; those of initializers stay where they are."""
    outside = [proto for proto in model.graph.initializer if proto.data_location == onnx.TensorProto.EXTERNAL]
    resolve(outside, folder)
    for proto in outside:
        proto.data_location = onnx.TensorProto.DEFAULT
    onnx.load_external_data_for_model(model, folder)
    for proto in outside:
        proto.data_location = onnx.TensorProto.EXTERNAL


def _unreadable(source: object) -> str:
    text = source.decode(errors="replace") if isinstance(source, bytes | bytearray) else str(source)
    shown = text if len(text) <= 200 else text[:200] + "..."
    return (
        f"Failed to load a ModelProto from the string '{shown}'.\n"
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx ModelProto string."
    )


def initializers_of(model: onnx.ModelProto, large: Large = _NONE) -> dict[str, np.ndarray]:
    """Return the data of initializers by id, in order; ``large`` holds those that ``load_light`` took out."""
    data = {}
    for proto in model.graph.initializer:
        # If two initializers have one name, the last one counts, which kept its data.
        taken = proto.name in large and not (proto.raw_data or proto.float_data or proto.int32_data)
        data[proto.name] = _owned(large[proto.name]) if taken else array_of(proto)
    return data


def _owned(array: np.ndarray) -> np.ndarray:
    """Return ``array``, or a copy of one that is a view of the model."""
    return array if array.flags.writeable else np.array(array)


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


def write_model(file: str | os.PathLike[str], model: bytes) -> None:
    """Write a serialised model atomically; raise EmulatorError if that fails."""
    try:
        replace_file(file, model)
    except OSError as error:
        raise EmulatorError(
            f"Cannot write the model '{file}': {error.strerror}; name a file that can be written"
        ) from error
