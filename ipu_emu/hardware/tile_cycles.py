"""Tile cycles: cycles to start and sync an op on the tiles of an IPU, and the elements exchanged for a product.

    C [M, N] = A [M, K] B [K, N] on Pm x Pn x Pk tiles

    a tile receives    1 / (Pm Pk) of A,  1 / (Pk Pn) of B
    and partial sums   of 1 / (Pm Pn) of C, (Pk - 1) / Pk of which come from other tiles

The grid is the one that exchanges the fewest elements; without splitting K or sharing B they would be many times as
many. In a batch of matrix products each product has its own tiles.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gcl import sync_seconds
from ipu_emu.hardware.generation import Generation

#: Cycles to start an op, and bytes of elements that the vector unit of a tile processes per cycle.
START, VECTOR_BYTES = 11, 8
#: The most parts into which a dimension of a product is divided.
_PARTS = 2.0 ** np.arange(12)

Values = NDArray[np.float64]


def sync_cycles(generation: Generation) -> float:
    """Cycles of the sync before the tiles of an IPU exchange."""
    return sync_seconds(1, generation.clock) * generation.clock


@lru_cache(maxsize=4096)  # pure: shared by all sessions, since the layers of a model repeat their shapes
def received(a: float, b: float, c: float, multiplications: float, tiles: int) -> float:
    """Elements that a tile receives for products C = A B; ``a``, ``b`` and ``c`` are numbers of elements."""
    shapes = np.array([[a], [b], [c], [multiplications]], float)
    return float(received_by_each(shapes, tiles)[0])


def received_by_each(shapes: Values, tiles: int) -> Values:
    """``received`` for many products: ``shapes`` are [A, B, C, multiplications] of each."""
    operands, (c, count) = np.sort(shapes[:2], axis=0)[::-1], shapes[2:]
    total: Values = operands.sum(axis=0) / tiles  # nothing is shared: not a product, or each group has its own tiles
    groups = np.maximum(1.0, np.rint(operands.prod(axis=0) * c / np.maximum(count, 1) ** 2))
    some = np.flatnonzero((groups < tiles) & (operands.prod(axis=0) * c > 0))
    if len(some):
        group_counts, sizes = groups[some], np.stack([*operands, c])[:, some] / groups[some]
        total[some] = _on_best_grid(sizes[0], sizes[1], sizes[2], tiles / group_counts)
    return total


def _on_best_grid(a: Values, b: Values, c: Values, tiles: Values) -> Values:
    """Elements for a product on the best grid: columns and layers are powers of two, rows use the remaining tiles."""
    a, b, c, tiles = (values[:, None, None] for values in (a, b, c, tiles))
    columns, layers = _PARTS[:, None], _PARTS
    wide, deep = np.sqrt(b * c / a), np.sqrt(a * b / c)
    rows = tiles / columns / layers
    needed = a / (rows * layers) + b / (layers * columns) + c / (rows * columns) * (layers - 1) / layers
    most = np.maximum(1.0, np.minimum(wide, tiles))
    can = (columns <= most) & (layers <= np.maximum(1.0, np.minimum(deep, tiles / columns)))
    best: Values = np.where(can, needed, np.inf).min(axis=(1, 2))
    return best
