"""Stand-ins: random data that look like real ones, and a feed that gives the same of them in every micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RepeatedFeed", "like_real"]


def like_real(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Normal numbers in the place of floats; integers and all else shuffled, so that labels stay labels."""
    if array.dtype.kind == "f":
        return random.standard_normal(array.shape, np.float32).astype(array.dtype, copy=False)
    return random.permutation(array.reshape(-1)).reshape(array.shape)


class RepeatedFeed:
    """The same ``chunks``, by the id of the input; outputs are copied to places that nobody reads."""

    def __init__(self, chunks: Mapping[str, NDArray[Any]]) -> None:
        self._chunks = chunks
        self._places: dict[str, NDArray[Any]] = {}

    def read(self, id: str) -> NDArray[Any]:
        """The data of an input."""
        return self._chunks[id]

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Move the bytes of an output."""
        if id not in self._places:
            self._places[id] = np.empty(value.shape, value.dtype)
        np.copyto(self._places[id], value)
