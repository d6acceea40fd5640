"""Balance: cuts a chain of units into one part for each IPU, such that the slowest part is as fast as possible.

    units   0   1 | 2   3   4 | 5   6      a part takes the seconds of its units and of the copies at its ends
    parts     0   |     1     |   2

Only cuts whose parts fit the memory count, or, if there are none, those whose fullest part needs least. Of the cuts
with the fastest slowest part, the one with the least sum of squares of bytes is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

#: Sums of seconds that differ by less are equal.
_ROUNDING = 1 + 1e-9

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Chain:
    """The ``seconds`` and ``nbytes`` of each unit, and the seconds of the ``copies`` of a cut before it.

    ``fixed``: seconds and bytes that the part ``home`` has in addition to its units, which suffice if they are
    ``enough`` for a part without units.
    """

    seconds: Sequence[float]
    nbytes: Sequence[float]
    copies: Sequence[float]
    fixed: tuple[float, float] = (0.0, 0.0)
    home: int = 0
    enough: bool = False


def balance(chain: Chain, ratios: Sequence[float], limit: float = inf) -> list[int]:
    """Return the part of each unit; ``ratios``: the relative seconds of the parts; ``limit``: the bytes of a part.

    A part has no unit only if its fixed work is enough, or if there are too few units for the last parts.
    """
    ratios = ratios[: len(chain.seconds) + chain.enough]
    limit = max(limit, _least(size for size, _ in _costs(chain, ratios))[0])
    slowest = _least(np.where(size <= limit, time, inf) for size, time in _costs(chain, ratios))[0] * _ROUNDING
    squares = (
        np.where((size <= limit) & (time <= slowest), size * size, inf) for size, time in _costs(chain, ratios)
    )
    firsts = _least(squares, np.add)[1]
    return [int(part) for part in np.searchsorted(firsts, range(len(chain.seconds)), side="right")]


def _costs(chain: Chain, ratios: Sequence[float]) -> Iterator[tuple[_Values, _Values]]:
    """Yield the bytes and the seconds of each part, [first unit, end], infinite where the part may not be empty."""
    copies = np.array([0.0, *chain.copies[1:], 0.0])
    seconds, size = _sums(chain.seconds) + copies[:, None] + copies, _sums(chain.nbytes)
    empty = np.diag(np.full(len(copies), inf))
    for part, ratio in enumerate(ratios):
        at_home = part == chain.home
        longer, more = chain.fixed if at_home else (0.0, 0.0)
        yield size + more + (0.0 if at_home and chain.enough else empty), (seconds + longer) / ratio


def _sums(values: Sequence[float]) -> _Values:
    """[first unit, end]: sums of consecutive ``values``; infinite if the end is before the first."""
    done = np.concatenate([[0.0], np.cumsum(values)])
    sums: _Values = np.where(np.tri(len(done), k=-1, dtype=bool), inf, done - done[:, None])
    return sums


def _least(costs: Iterator[_Values], total: np.ufunc = np.maximum) -> tuple[float, list[int]]:
    """The least ``total`` of ``costs`` [first unit, end] of parts in a row, and the first units of all but part 0."""
    best, firsts = next(costs)[0], list[_Values]()
    for cost in costs:
        both = total(best[:, None], cost)
        firsts.append(both.argmin(axis=0))
        best = both.min(axis=0)
    cuts = [len(best) - 1]
    for first in reversed(firsts):
        cuts.insert(0, int(first[cuts[0]]))
    return float(best[-1]), cuts[:-1]
