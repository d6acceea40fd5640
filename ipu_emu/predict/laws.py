"""Laws of scaling: speed-ups by Amdahl, Gustafson and Gunther, Karp and Flatt's fraction, and the line t GA + c.

    Amdahl       fixed work:   1 / (c + (1 - c) / s)      c = 0.5, s = 4: 1.6 (40 %)
    Gustafson    scaled work:  c + (1 - c) s              c = 0.5, s = 4: 2.5 (62.5 %)
    universal    N / (1 + a (N - 1) + b N (N - 1))        a: contention, b: coherence, such as all-to-all waiting
    Karp-Flatt   (1 / S - 1 / N) / (1 - 1 / N)            the serial fraction that explains a speed-up S on N

c is the constant fraction of the time, s the speed-up of the rest; efficiency is speed-up / s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError


def _check(constant: float, compute: float) -> None:
    if not 0 <= constant <= 1:
        raise EmulatorError(f"a constant share of {constant:g} is not possible; use 0 to 1")
    if not 0 < compute < float("inf"):
        raise EmulatorError(f"{compute:g} times the compute is not possible; use a finite number above 0")


def amdahl(constant: float, compute: float) -> float:
    """The speed-up of the same work."""
    _check(constant, compute)
    return 1 / (constant + (1 - constant) / compute)


def gustafson(constant: float, compute: float) -> float:
    """The speed-up of work that grows with the compute."""
    _check(constant, compute)
    return constant + (1 - constant) * compute


def universal(contention: float, coherence: float, count: float) -> float:
    """The speed-up of Gunther's universal scalability law, which falls again for many processors."""
    return count / (1 + contention * (count - 1) + coherence * count * (count - 1))


def universal_fit(counts: Sequence[float], speedups: Sequence[float]) -> tuple[float, float]:
    """Contention and coherence of the universal law for measured speed-ups, neither of them negative."""
    n = np.array(counts)
    contention, coherence = nonnegative(np.stack([n - 1, n * (n - 1)], 1), n / np.array(speedups) - 1)
    return float(contention), float(coherence)


def karp_flatt(speedup: float, count: int) -> float:
    """The serial fraction of a measured ``speedup`` on ``count`` processors, of at least 2."""
    if count < 2 or not speedup > 0:
        raise EmulatorError(f"a speed-up of {speedup:g} on {count} has no serial fraction; measure at least 2")
    return (1 / speedup - 1 / count) / (1 - 1 / count)


def nonnegative(table: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least squares solution without negative numbers, by trying every choice of columns."""
    columns, best, least = range(table.shape[1]), np.zeros(table.shape[1]), float(values @ values)
    better = 1e-12 * least
    for count in range(1, len(columns) + 1):
        for chosen in map(list, combinations(columns, count)):
            some = np.linalg.lstsq(table[:, chosen], values, rcond=None)[0]
            error = float(((table[:, chosen] @ some - values) ** 2).sum())
            if some.min() >= 0 and error < least - better:
                best, least = np.zeros(len(columns)), error
                best[chosen] = some
    return best


@dataclass(frozen=True)
class AccumulationFit:
    """Seconds of a step = ``micro_batch`` x accumulation + ``constant``; ``residuals`` are relative."""

    micro_batch: float
    constant: float
    residuals: tuple[float, ...]

    @property
    def freedom(self) -> int:
        """Degrees of freedom: none for two points, which any line fits."""
        return len(self.residuals) - 2

    def seconds(self, accumulation: float) -> float:
        return self.micro_batch * accumulation + self.constant


def fit_accumulation(points: Sequence[tuple[float, float]]) -> AccumulationFit:
    """The line through (accumulation, seconds), by least squares of relative errors."""
    counts, seconds = np.array([count for count, _ in points]), np.array([time for _, time in points])
    if len(set(counts.tolist())) < 2:
        raise EmulatorError(
            "steps of one accumulation do not determine both t and c; give at least two accumulations"
        )
    if min(seconds) <= 0 or min(counts) <= 0:
        raise EmulatorError("accumulations and times must be above 0")
    table = np.stack([counts / seconds, 1 / seconds], 1)
    (slope, constant), *_ = np.linalg.lstsq(table, np.ones(len(counts)), rcond=None)
    fitted = slope * counts + constant
    return AccumulationFit(float(slope), float(constant), tuple(map(float, fitted / seconds - 1)))
