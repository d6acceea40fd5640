"""Data types: element types with their names in PopART, numpy and ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from popdist_py.messages.suggestion import did_you_mean


@dataclass(frozen=True)
class DType:
    """One row of the table of element types."""

    name: str
    numpy: np.dtype[Any]
    onnx: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle to the row of the table, because types are compared by identity."""
        return dtype_named, (self.name,)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.numpy.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.numpy.kind in "iu"

    def __str__(self) -> str:
        return self.name


#: PopART name, numpy type, number in onnx.TensorProto.DataType.
DTYPES: tuple[DType, ...] = tuple(
    DType(name, np.dtype(numpy), onnx)
    for name, numpy, onnx in [
        ("FLOAT", "float32", 1),
        ("UINT8", "uint8", 2),
        ("INT8", "int8", 3),
        ("UINT16", "uint16", 4),
        ("INT16", "int16", 5),
        ("INT32", "int32", 6),
        ("INT64", "int64", 7),
        ("BOOL", "bool", 9),
        ("FLOAT16", "float16", 10),
        ("DOUBLE", "float64", 11),
        ("UINT32", "uint32", 12),
        ("UINT64", "uint64", 13),
    ]
)

#: ONNX's other element types by number, and what to do instead.
_OTHERS = {
    **{8: "STRING", 14: "COMPLEX64", 15: "COMPLEX128", 16: "BFLOAT16", 17: "FLOAT8E4M3FN", 18: "FLOAT8E4M3FNUZ"},
    **{19: "FLOAT8E5M2", 20: "FLOAT8E5M2FNUZ", 21: "UINT4", 22: "INT4", 23: "FLOAT4E2M1", 24: "FLOAT8E8M0"},
    **{25: "UINT2", 26: "INT2", 27: "FLOAT6E2M3", 28: "FLOAT6E3M2"},
}
_INSTEAD: dict[tuple[str, ...], str] = {
    ("STRING",): "devices have no strings; convert them to numbers on the host",
    ("COMPLEX",): "devices have no complex numbers; use a tensor of real and one of imaginary parts",
    ("BFLOAT16",): "devices compute in FLOAT and FLOAT16; cast it to FLOAT",
    ("FLOAT8", "FLOAT6", "FLOAT4"): "PopART 3.4 has no numbers of 4, 6 or 8 bits with a fraction; cast it to FLOAT16",
    ("UINT", "INT"): "PopART 3.4 has no integers of fewer than 8 bits; cast it to INT8 or UINT8",
}

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_BY_ONNX = {dtype.onnx: dtype for dtype in DTYPES}


def dtype_named(name: str) -> DType:
    """Return the type called ``name`` in PopART, in any letter case; raise EmulatorError for other names."""
    try:
        return _BY_NAME[name.upper()]
    except KeyError:
        hint = did_you_mean(name, _BY_NAME)
        raise EmulatorError(f"Unrecognised data type '{name}'; use one of {', '.join(_BY_NAME)}{hint}") from None


def dtype_of(kind: Any) -> DType:
    """Return the type of a numpy dtype, scalar type or array."""
    numpy = kind.dtype if isinstance(kind, np.ndarray) else np.dtype(kind)
    try:
        return _BY_NUMPY[numpy]
    except KeyError:
        raise EmulatorError(f"Unsupported data type {numpy}; use one of {', '.join(_BY_NAME)}") from None


def dtype_numbered(number: int) -> DType:
    """Return the type with this number in ONNX."""
    try:
        return _BY_ONNX[number]
    except KeyError:
        name = _OTHERS.get(number, f"number {number}")
        what = next(
            (text for kinds, text in _INSTEAD.items() if name.startswith(kinds)), f"use {', '.join(_BY_NAME)}"
        )
        raise EmulatorError(f"ONNX's element type {name} is not supported: {what}") from None


FLOAT = _BY_NAME["FLOAT"]
FLOAT16 = _BY_NAME["FLOAT16"]
INT32 = _BY_NAME["INT32"]
UINT32 = _BY_NAME["UINT32"]
INT64 = _BY_NAME["INT64"]
BOOL = _BY_NAME["BOOL"]


def name_of(numpy: np.dtype[Any]) -> str:
    """Return PopART's name of a numpy dtype, or its numpy name if PopART has none."""
    return _BY_NUMPY[numpy].name if numpy in _BY_NUMPY else str(numpy)
