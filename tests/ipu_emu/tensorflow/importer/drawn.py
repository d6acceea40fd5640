"""Drawn numbers: numpy's generator methods for cases, with numbers drawn by hypothesis.

Sizes, axes, indices and attributes are drawn one by one, so that a failure shrinks to the least of them; the elements
of operands come from a generator whose seed is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies

__all__ = ["Drawn"]

#: More integers at once than this are elements of an operand.
_FEW = 16


class Drawn:
    """``draw`` returns a value of a strategy."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self._elements = np.random.default_rng(draw(strategies.integers(0, 2**16)))

    def integers(self, low: int, high: int, size: Any = None) -> Any:
        """Integers from ``low`` to ``high`` - 1, one or an array of them."""
        if size is None:
            return self._draw(strategies.integers(int(low), int(high) - 1))
        count = int(np.prod(size))
        if count > _FEW:
            return self._elements.integers(low, high, size)
        values = [self.integers(low, high) for _ in range(count)]
        return np.array(values, np.int64).reshape(size)

    def choice(self, options: Sequence[Any]) -> Any:
        return self._draw(strategies.sampled_from(list(options)))

    def permutation(self, count: int) -> Any:
        if count > _FEW:
            return self._elements.permutation(count)
        return np.array(self._draw(strategies.permutations(range(count))), np.int64)

    def uniform(self, low: float, high: float, shape: Any) -> Any:
        return self._elements.uniform(low, high, shape)
