"""grid: how a product of matrices is cut over the tiles of an IPU, and what a tile receives for its piece.

    C [M, N] = A [M, K] B [K, N] on Pm x Pn x Pk tiles

    a tile needs       1 / (Pm Pk) of A,  1 / (Pk Pn) of B
    and of its piece   1 / (Pm Pn) of C,  (Pk - 1) / Pk of which others have summed in part

The grid is the one with the fewest bytes; one that never cut K, or never shared B, would need many times as many.
Products of several groups (batches of matrices) get tiles of their own each. For convolutions A is the image as it
lies: pixels that two tiles need both are counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["Product"]


@dataclass(frozen=True)
class Product:
    """Elements of A, B and C, and multiplications of them."""

    a: int
    b: int
    c: int
    multiplications: int

    @property
    def groups(self) -> int:
        """Products that have nothing in common: G M K, G K N and G M N elements, G M N K multiplications."""
        return max(1, round(self.a * self.b * self.c / max(self.multiplications, 1) ** 2))

    def received(self, tiles: int) -> float:
        """Elements that a tile receives, on the best grid of so many tiles."""
        return _received(self, tiles)


@cache
def _received(product: Product, tiles: int) -> float:
    groups = product.groups
    if groups >= tiles:
        return (product.a + product.b) / tiles
    a, b, c = (size / groups for size in (product.a, product.b, product.c))
    each = tiles / groups
    wide, deep = (b * c / a) ** 0.5, (a * b / c) ** 0.5
    best = float("inf")
    for columns in _powers(min(wide, each)):
        for layers in _powers(min(deep, each / columns)):
            rows = each / columns / layers
            summed = c / (rows * columns) * (layers - 1) / layers
            best = min(best, a / (rows * layers) + b / (layers * columns) + summed)
    return best


def _powers(limit: float) -> list[int]:
    """1, 2, 4, ... up to ``limit``."""
    return [1 << exponent for exponent in range(max(int(limit), 1).bit_length())]
