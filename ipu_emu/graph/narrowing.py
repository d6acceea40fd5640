"""Narrowing: 64-bit numbers converted to the 32 bits of the device, with a warning if they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from popdist_py.messages.user_warning import warn_user


def narrowed(array: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Return ``array`` with elements of ``kind``; warn of values of 64 bits beyond the range of a kind of 32."""
    with np.errstate(all="ignore"):
        result: NDArray[Any] = array.astype(kind)
    if result.size and (array.dtype.itemsize, result.dtype.itemsize) == (8, 4):
        if result.dtype.kind == "f":
            if np.isinf(result).any() and np.isinf(result).sum() > np.isinf(array).sum():
                _warn(array.dtype, result.dtype, "have become infinite", "scale them")
        else:
            limits = np.iinfo(result.dtype)
            if array.min() < limits.min or array.max() > limits.max:
                _warn(array.dtype, result.dtype, "have lost their upper bits", "keep them smaller, or use float32")
    return result


def _warn(old: np.dtype[Any], new: np.dtype[Any], fate: str, cure: str) -> None:
    """Warn, without values in the text, so that Python shows it once for each line of the user's program."""
    warn_user(f"{old} values beyond the range of {new} {fate}, as IPUs hold {new} instead of {old}: {cure}")
