"""Laws of scaling: Amdahl's and Gustafson's speed-up, the serial fraction of Karp and Flatt, and the line t GA + c.

    Amdahl       fixed work:   1 / (c + (1 - c) / s)      c = 0.5, s = 4: 1.6 (40 %)
    Gustafson    scaled work:  c + (1 - c) s              c = 0.5, s = 4: 2.5 (62.5 %)
    Karp-Flatt   (1 / S - 1 / N) / (1 - 1 / N)            the serial fraction that explains a speed-up S on N

c is the constant fraction of the time, s the speed-up of the rest; efficiency is speed-up / s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def karp_flatt(speedup: float, count: int) -> float:
    """The serial fraction of a measured ``speedup`` on ``count`` processors, of at least 2."""
    if count < 2 or not speedup > 0:
        raise EmulatorError(f"a speed-up of {speedup:g} on {count} has no serial fraction; measure at least 2")
    return (1 / speedup - 1 / count) / (1 - 1 / count)


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
