"""TensorInfo: every way to give a type and a shape, and its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ipu_emu.popart as popart
from ipu_emu.errors import EmulatorError
from ipu_emu.popart.types.tensor_info import TensorInfo, getTensorInfo


@pytest.mark.parametrize("kind", ["FLOAT16", np.float16, np.dtype(np.float16), popart.DataType.FLOAT16])
def test_a_type_in_every_form(kind: Any) -> None:
    info = TensorInfo(kind, [2, np.int64(3)])
    assert info == getTensorInfo(np.zeros((2, 3), np.float16))
    assert hash(info) == hash(TensorInfo("FLOAT16", (2, 3)))
    assert (info.shape(), info.data_type(), info.data_type_lcase()) == ([2, 3], "FLOAT16", "float16")
    assert (info.nelms(), info.nbytes()) == (6, 12)
    assert repr(info) == "FLOAT16 [2, 3]"


def test_shapes_and_types_tell_infos_apart() -> None:
    infos = [TensorInfo("FLOAT", []), TensorInfo("FLOAT", [1]), TensorInfo("INT32", []), TensorInfo("FLOAT", [0, 2])]
    assert len(set(infos)) == 4
    assert [info.nelms() for info in infos] == [1, 1, 1, 0]
    assert infos[0] != "FLOAT []"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("FLOAT",), "needs a type and a shape, or an array"),
        (("FLOAT", [2, -1]), r"Shape \[2, -1\] has a negative dimension"),
    ],
)
def test_mistakes(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(EmulatorError, match=text):
        TensorInfo(*arguments)
