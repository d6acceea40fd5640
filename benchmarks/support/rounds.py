"""Rounds: measures contenders that take turns, and makes the resulting row.

A number is the median over rounds, the ratio the median of the ratios of the rounds: above 1 we are faster.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

__all__ = ["Make", "Row", "in_turns", "median_ms", "report", "rounds_of", "row", "row_of_times", "write_rows"]

#: Creates an endless iterator over batches.
Make = Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Row:
    """One case: ours and the peers in ``unit``; ``ratio`` above 1 means that we are better than the best peer.

    ``load`` is the average number of processes that wanted a core in the minute before, this benchmark included.
    """

    case: str
    unit: str
    ours: float
    peers: dict[str, float]
    ratio: float
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def __str__(self) -> str:
        peers = ", ".join(f"{name} {value:.4g}" for name, value in self.peers.items())
        return f"{self.case:58} ours {self.ours:9.4g} {self.unit:10} {peers:46} ratio {self.ratio:.2f}"


def in_turns(contenders: Sequence[str], rounds: int) -> Iterator[str]:
    """The contenders in each round; every other round begins with the last one."""
    for number in range(rounds):
        yield from contenders if number % 2 else reversed(contenders)


def median_ms(step: Callable[[], object], seconds: float, clock: Callable[[], float] = perf_counter) -> float:
    """Median milliseconds of a step by ``clock``, over about ``seconds``, at least 3 steps."""
    samples: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(samples) < 3:
        start = clock()
        step()
        samples.append(1e3 * (clock() - start))
    return statistics.median(samples)


def rate(batches: Iterator[Any], seconds: float) -> float:
    """Batches per second, after a few to warm up."""
    for _ in islice(batches, 8):
        pass
    count, begin = 0, perf_counter()
    while perf_counter() - begin < seconds:
        next(batches)
        count += 1
    return count / (perf_counter() - begin)


def rounds_of(contenders: dict[str, Make], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Batches per second of each contender in each round."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for name in in_turns(list(contenders), rounds):
        rates[name].append(rate(contenders[name](), seconds))
    return rates


def row(case: str, unit: str, rates: dict[str, list[float]], mine: str, scale: float) -> Row:
    medians = {name: statistics.median(values) * scale for name, values in rates.items()}
    peers = {name: value for name, value in medians.items() if not name.startswith("ours")}
    best = max(peers, key=lambda name: peers[name])
    ratio = statistics.median(a / b for a, b in zip(rates[mine], rates[best], strict=True))
    return Row(case, unit, medians[mine], peers, ratio)


def row_of_times(case: str, times: dict[str, list[float]], mine: str, peer: str) -> Row:
    """The row of the milliseconds of each contender in each round."""
    ratios = [b / a for a, b in zip(times[mine], times[peer], strict=True)]
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Row(case, "ms", medians[mine], {peer: medians[peer]}, statistics.median(ratios))


def report(rows: Iterable[Row], path: Path | None) -> None:
    """Print each row as soon as it is known, and write all of them to ``path``."""
    found = []
    for one in rows:
        print(one, flush=True)
        found.append(one)
    write_rows(path, found)


def write_rows(path: Path | None, rows: Iterable[Row]) -> None:
    """Write the rows as JSON; nothing without a ``path``."""
    if path:
        path.write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n")
