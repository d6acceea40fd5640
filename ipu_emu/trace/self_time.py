"""Self time: the time of a span without that of the spans inside it, so that times of all spans add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def depths(spans: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The order of the spans of one thread, outer before inner, and in that order how many spans contain each."""
    ends = np.maximum(spans["end"], spans["begin"] + 1)  # an empty span is not over when it begins
    order = np.lexsort((-ends, spans["begin"]))
    over = np.searchsorted(np.sort(ends), spans["begin"][order], side="right")
    return order, np.arange(len(spans)) - over


def self_times(spans: NDArray[Any]) -> NDArray[np.int64]:
    """Nanoseconds that each span of one thread spent outside the spans inside it."""
    order, depth = depths(spans)
    own = (spans["end"] - spans["begin"]).astype(np.int64)
    lengths = own[order]
    left = lengths.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        (inner,), (outer,) = np.nonzero(depth == level), np.nonzero(depth == level - 1)
        parents = outer[np.searchsorted(outer, inner) - 1]
        np.subtract.at(left, parents, lengths[inner])
    own[order] = np.maximum(left, 0)
    return np.asarray(own)
