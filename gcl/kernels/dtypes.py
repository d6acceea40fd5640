"""Element types: the dtypes that can be reduced, their representation in kernels, and their sum dtype."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from gcl.errors import ArgumentError


class _Representation(NamedTuple):
    seen_as: Any  # the dtype in kernels, where half types are 16-bit integers
    summed_in: Any  # the dtype of sums, in which half types round, and integers wrap, only once at the end


DTYPES: dict[np.dtype[Any], _Representation] = {
    np.dtype(np.float32): _Representation(np.float32, np.float32),
    np.dtype(np.float16): _Representation(np.uint16, np.float32),
    np.dtype(ml_dtypes.bfloat16): _Representation(np.int16, np.float32),
    np.dtype(np.float64): _Representation(np.float64, np.float64),
    np.dtype(np.int32): _Representation(np.int32, np.int64),
    np.dtype(np.uint32): _Representation(np.uint32, np.int64),
    np.dtype(np.int8): _Representation(np.int8, np.int64),
    np.dtype(np.uint8): _Representation(np.uint8, np.int64),
    np.dtype(np.bool_): _Representation(np.uint8, np.int64),
    # also the dtype of partial sums of integers between hosts
    np.dtype(np.int64): _Representation(np.int64, np.int64),
}


def type_tag(dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that selects the kernels of ``dtype``; ArgumentError if the dtype cannot be reduced."""
    if dtype not in DTYPES:
        raise ArgumentError(f"a tensor of {dtype} is not supported; use {', '.join(map(str, DTYPES))}")
    return np.empty(0, DTYPES[dtype].seen_as)


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which ``dtype`` is combined before it is rounded, or wrapped, once."""
    summed_in: np.dtype[Any] = np.dtype(DTYPES[dtype].summed_in)
    return summed_in
