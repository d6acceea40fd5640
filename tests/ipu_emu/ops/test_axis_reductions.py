"""SumTo: sums over the axes that a broadcast added, whatever the order of axes in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipu_emu.ops.reduction.axis_reductions import _sum_to


@pytest.mark.parametrize("turned", [False, True])
def test_sums_do_not_depend_on_how_they_are_stored(turned: bool) -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 8, 4)
    y = np.empty((4, 8), np.float32).T if turned else np.empty((8, 4), np.float32)
    bound: Any = SimpleNamespace(input=lambda _: x, outputs=(y,))
    _sum_to(bound)()
    np.testing.assert_array_equal(y, x[0] + x[1])
