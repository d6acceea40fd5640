"""Fit: what a step consists of, by non-negative least squares of relative errors, with 90 % intervals.

    work     t share + t_cores (share where cores are shared - share) + c      outside collectives
    moving   call calls + byte bytes                                          collectives, without waiting
    waiting  straggling work + straggling_cores (as in work)                  for the slowest instance

share: the samples of a step (or multiples of those of the smallest configuration, if nothing tells them) that a lane
does; lanes are instances, or replicas if those of an instance run at the same time: whichever fits better. Without a
recorder there is only ``work``, with one call for several instances. Intervals: bootstrap over the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ipu_emu.predict.experiment.measuring import Measurements
from ipu_emu.predict.experiment.plan import Configuration
from ipu_emu.predict.laws import nonnegative

_RESAMPLES = 300
#: Terms of a fit: their units and meanings.
TERMS = {
    "t": ("s", "time of a sample"),
    "t_cores": ("s", "more time of a sample where more lanes than cores work"),
    "c": ("s", "constant time of a step"),
    "call": ("s", "time of a collective"),
    "byte": ("s", "time of a byte in collectives"),
    "straggling": ("", "waiting for the slowest instance, as a share of the work"),
    "straggling_cores": ("", "the same, of the work where cores are shared"),
}
_Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A number with its 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_zero(self) -> bool:
        """Whether it cannot be told from 0."""
        return self.low <= 1e-3 * self.value


@dataclass(frozen=True)
class Shares:
    """The samples of a step of each configuration, and how they were known; ``unit`` is ``sample`` or ``share``."""

    samples: Mapping[Configuration, float]
    scaling: str
    unit: str
    source: str


def shares(runs: Measurements) -> Shares:
    """The work of a step: samples that the recorder or the program told, else what option or times say."""
    samples = {configuration: runs.median(configuration, "samples") for configuration in runs.uses}
    unit, source, scaling = "sample", "the recorder", runs.plan.scaling
    base = runs.plan.base
    if not all(samples.values()):
        unit, source = "share", f"--{scaling}" if scaling else "the times outside collectives"
        scaling = scaling or _seen(runs)
        grows = scaling == "weak"
        samples = {c: c.accumulation * (c.replicas / base.replicas if grows else 1.0) for c in runs.uses}
    largest = max(runs.uses, key=lambda c: c.replicas / c.accumulation)
    grown = samples[largest] / samples[base] * base.accumulation / largest.accumulation
    ratio = largest.replicas / base.replicas
    observed = "weak" if grown > sqrt(ratio) else "strong"
    return Shares(samples, scaling or observed, unit, source)


def _seen(runs: Measurements) -> str:
    """Weak if the work of a replica stays the same with more of them on cores of their own; strong if it shrinks."""
    base = runs.plan.base
    peers = [
        c
        for c in runs.uses
        if c.replicas == c.instances <= runs.plan.processors(c.replicas, c.instances)
        and c.accumulation == base.accumulation
    ]
    last = max(peers, default=base)
    ratio = runs.median(last, "work") / runs.median(base, "work")
    return "strong" if ratio < (base.replicas / last.replicas) ** 0.5 else "weak"


@dataclass(frozen=True)
class Fit:
    """The terms with intervals, the fitted seconds of each configuration, and its speed-up with interval.

    ``lanes``: ``instances`` or ``replicas``, which work at the same time.
    """

    terms: Mapping[str, Interval]
    seconds: Mapping[Configuration, float]
    speedups: Mapping[Configuration, Interval]
    lanes: str
    shares: Shares

    def residual(self, configuration: Configuration, measured: float) -> float:
        return self.seconds[configuration] / measured - 1


class _Model:
    """The equations for measured medians, with a choice of ``lanes``."""

    def __init__(self, runs: Measurements, samples: Mapping[Configuration, float], lanes: str) -> None:
        self.runs, self.lanes = runs, lanes
        self.configurations = list(runs.uses)
        self.recorded = all(use.source == "recorder" for entries in runs.uses.values() for use in entries)
        counts = [getattr(c, lanes) for c in self.configurations]
        used = [runs.plan.processors(n, c.instances) for n, c in zip(counts, self.configurations, strict=True)]
        total = np.array([samples[c] for c in self.configurations])
        self.share = total / counts
        self.crowded = total / used - self.share
        self.several = np.array([float(c.instances > 1) for c in self.configurations])

    def numbers(self, name: str, rounds: Sequence[int]) -> _Vector:
        return np.array([self.runs.median(c, name, rounds) for c in self.configurations])

    def solve(self, rounds: Sequence[int]) -> tuple[dict[str, float], _Vector]:
        """The terms, and the fitted seconds."""
        step, ones = self.numbers("seconds", rounds), np.ones(len(self.configurations))
        if not self.recorded:
            terms, fitted = _solved([self.share, self.crowded, ones, self.several], step, step)
            return dict(zip(("t", "t_cores", "c", "call"), terms, strict=True)), fitted
        work, waiting, moving = (self.numbers(name, rounds) for name in ("work", "waiting", "collectives"))
        own, work_fitted = _solved([self.share, self.crowded, ones], work, step)
        calls, moved = _solved([self.numbers(name, rounds) for name in ("calls", "nbytes")], moving, step)
        late, waited = _solved([work * self.several, self.crowded * self.several * own[0]], waiting, step)
        return dict(zip(TERMS, (*own, *calls, *late), strict=True)), work_fitted + moved + waited


def _solved(columns: Sequence[_Vector], values: _Vector, step: _Vector) -> tuple[_Vector, _Vector]:
    """Coefficients of the columns, by least squares of errors relative to the step, and the fitted values."""
    table = np.stack(columns, 1)
    sizes = np.abs(table).max(0)
    sizes[sizes == 0] = 1.0
    coefficients = nonnegative(table / sizes / step[:, None], values / step) / sizes
    return coefficients, table @ coefficients


def fit(runs: Measurements) -> Fit:
    """Fit the terms to all rounds; intervals come from resampled rounds."""
    work, every = shares(runs), range(runs.rounds)
    models = [_Model(runs, work.samples, lanes) for lanes in ("instances", "replicas")]
    step = models[0].numbers("seconds", every)
    model = min(models, key=lambda model: float(((model.solve(every)[1] / step - 1) ** 2).sum()))
    names, fitted = model.solve(every)
    samples = np.array(list(work.samples.values()))

    def speedups(rounds: Sequence[int]) -> Sequence[float]:
        rates = samples / model.numbers("seconds", rounds)
        return list(rates / rates[0])

    terms = _intervals(lambda rounds: list(model.solve(rounds)[0].values()), runs.rounds)
    return Fit(
        dict(zip(names, terms, strict=True)),
        dict(zip(runs.uses, map(float, fitted), strict=True)),
        dict(zip(runs.uses, _intervals(speedups, runs.rounds), strict=True)),
        model.lanes,
        work,
    )


def _intervals(numbers: Callable[[Sequence[int]], Sequence[float]], rounds: int) -> list[Interval]:
    """Numbers of all rounds, with 90 % intervals from resampled rounds, widened for few of them."""
    values = np.array(numbers(range(rounds)))
    random = np.random.default_rng(0)
    tries = np.array([numbers(random.integers(0, rounds, rounds).tolist()) for _ in range(_RESAMPLES)])
    wide = sqrt(rounds / max(rounds - 1, 1))
    low, high = np.percentile(tries, (5, 95), axis=0)
    lows, highs = np.maximum(values + (low - values) * wide, 0.0), values + (high - values) * wide
    return [
        Interval(*map(float, numbers))
        for numbers in zip(values, np.minimum(lows, values), np.maximum(highs, values), strict=True)
    ]
