"""Element types: unsupported ones are refused by name, with the type to use instead."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.dtype import DTYPES, dtype_numbered


@pytest.mark.parametrize("name", sorted(TensorProto.DataType.keys()))
def test_every_element_type_of_onnx_is_held_or_refused_by_name(name: str) -> None:
    number = TensorProto.DataType.Value(name)
    if name in {dtype.name for dtype in DTYPES}:
        assert dtype_numbered(number).name == name
        return
    with pytest.raises(EmulatorError) as error:
        dtype_numbered(number)
    shown = "number 0" if name == "UNDEFINED" else name
    text = error.value.args[0]
    assert text.startswith(f"ONNX's element type {shown} is not supported: ")
    assert ("; " in text) != (name == "UNDEFINED")
