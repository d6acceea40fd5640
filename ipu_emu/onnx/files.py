"""ONNX files: the syntax of a model, in bytes or in a file, and where its external data are."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.tensors import TensorReader
from ipu_emu.onnx.wire import without_large_data

#: A model, its file, or an object with the attribute ``model_proto``, as PyTorch's exporter returns it.
Source = bytes | str | os.PathLike[str] | onnx.ModelProto

#: Opsets of ai.onnx; the newest is that of the onnx package.
_OLDEST, _DEFAULT = 6, 10


class ModelBytes(bytes):
    """A model whose external data this program itself has written to ``files``, wherever they are."""

    def __new__(cls, model: bytes, files: Collection[str] = ()) -> ModelBytes:
        self = super().__new__(cls, model)
        self.files = frozenset(map(os.path.realpath, files))
        return self

    files: frozenset[str]


@dataclass(frozen=True)
class ParsedModel:
    """A model of ``opset``; ``tensors`` reads the data of its initializers and constants."""

    proto: onnx.ModelProto
    opset: int
    tensors: TensorReader


def parsed(source: Source, *, light: bool = True) -> ParsedModel:
    """Parse a model, with ``light`` without the data of large initializers; raise EmulatorError for anything else."""
    proto = getattr(source, "model_proto", source)
    if isinstance(proto, onnx.ModelProto):
        source = proto.SerializeToString()
    file = os.fspath(source) if isinstance(source, str | os.PathLike) and os.path.isfile(source) else None
    folder = os.path.dirname(os.path.abspath(file)) if file else os.getcwd()
    try:
        model, large = _syntax(source, file, light)
        if not model.HasField("graph"):
            raise ValueError("a message without a graph")
    except Exception as error:  # protobuf has no public base class for its parse errors
        raise EmulatorError(_unreadable(source)) from error
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), _DEFAULT)
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST <= opset <= newest:
        raise EmulatorError(
            f"Encountered ONNX opset version {opset}, Maximimum supported opset is {newest}, minimum {_OLDEST} and "
            f"default {_DEFAULT}."
        )
    model = onnx.inliner.inline_local_functions(model) if model.functions else model
    own = source.files if isinstance(source, ModelBytes) else frozenset[str]()
    return ParsedModel(model, opset, TensorReader(large, folder, own))


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


def _unreadable(source: object) -> str:
    text = source.decode(errors="replace") if isinstance(source, bytes | bytearray) else str(source)
    shown = text if len(text) <= 200 else text[:200] + "..."
    return (
        f"Failed to load a ModelProto from the string '{shown}'.\n"
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx ModelProto string."
    )
