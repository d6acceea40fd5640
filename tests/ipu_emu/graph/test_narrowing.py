"""Narrowing: the values are those of a cast; if some do not fit, one warning names the user's line."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from ipu_emu.graph.narrowing import narrowed


@pytest.mark.parametrize(
    ("values", "source", "kind", "said"),
    [
        ([2**31], np.int64, np.int32, "int64 values beyond the range of int32 have lost their upper bits"),
        ([0, -(2**31) - 1], np.int64, np.int32, "have lost their upper bits"),
        ([2**32], np.uint64, np.uint32, "uint64 values beyond the range of uint32 have lost their upper bits"),
        ([-1e39, np.inf], np.float64, np.float32, "float64 values beyond the range of float32 have become infinite"),
    ],
)
def test_values_that_do_not_fit_cause_a_warning_at_the_users_line(
    values: list[Any], source: Any, kind: Any, said: str
) -> None:
    array = np.array(values, source)
    with pytest.warns(UserWarning, match=said) as warned:
        result = narrowed(array, kind)
    assert [warning.filename for warning in warned] == [__file__]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, array.astype(kind))


@pytest.mark.parametrize(
    ("values", "source", "kind"),
    [
        ([2**31 - 1, -(2**31)], np.int64, np.int32),
        ([], np.int64, np.int32),
        ([2**32 - 1], np.uint64, np.uint32),
        ([1e38, -np.inf, np.inf, np.nan], np.float64, np.float32),
        ([-1e9], np.float64, np.float16),  # a value of attention masks, for any float type
    ],
)
def test_values_that_fit_cause_no_warning(values: list[Any], source: Any, kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = narrowed(np.array(values, source), kind)
    assert result.dtype == kind
