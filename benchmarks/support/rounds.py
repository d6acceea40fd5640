"""Rounds: measures contenders that take turns, and makes the resulting row.

A number is the median over rounds, the ratio the median of the ratios of the rounds: above 1 we are faster. A peer
that cannot run is named in the row with the reason, and the benchmark goes on.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

__all__ = [
    "Make",
    "Row",
    "blocks",
    "in_turns",
    "measured_in_turns",
    "median_ms",
    "reason",
    "report",
    "rounds_of",
    "row",
    "row_of_times",
    "write_rows",
]

#: Creates an endless iterator over batches.
Make = Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Row:
    """One case: ours and the peers in ``unit``; ``ratio`` above 1 means that we are better than the best peer.

    ``load`` is the average number of processes that wanted a core in the minute before, this benchmark included.
    ``failed`` are the peers that could not run, and why; without any other peer the ratio is 1.
    """

    case: str
    unit: str
    ours: float
    peers: dict[str, float]
    ratio: float
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        peers = ", ".join(f"{name} {value:.4g}" for name, value in self.peers.items())
        failed = "".join(f"; {name} failed: {why}" for name, why in self.failed.items())
        return f"{self.case:58} ours {self.ours:9.4g} {self.unit:10} {peers:46} ratio {self.ratio:.2f}{failed}"


def reason(error: BaseException) -> str:
    """The type of ``error`` and the first line of its message, for a row."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]


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


def measured_in_turns(
    contenders: Mapping[str, Callable[[], float]], ours: Collection[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """The milliseconds that each contender returns in each round, and the reasons why some could not run.

    A contender that is not ``ours`` and raises an exception has no times, and no further turn.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    failed: dict[str, str] = {}
    for name in in_turns(list(contenders), rounds):
        if name in failed:
            continue
        try:
            times[name].append(contenders[name]())
        except Exception as error:  # the failure of a peer is a result
            if name in ours:
                raise
            failed[name] = reason(error)
            del times[name]
    return times, failed


def blocks(
    steps: Mapping[str, Callable[[], object]], seconds: float, clock: Callable[[], float] = perf_counter
) -> dict[str, Callable[[], float]]:
    """For each contender the function that runs a step, and then measures others for about ``seconds``."""

    def block(step: Callable[[], object]) -> float:
        step()
        return median_ms(step, seconds, clock)

    return {name: partial(block, step) for name, step in steps.items()}


def row_of_times(
    case: str, times: Mapping[str, list[float]], mine: str, *peers: str, failed: Mapping[str, str] | None = None
) -> Row:
    """The row of the milliseconds of ``mine`` and of ``peers`` in each round; the ratio is that to the fastest peer.

    Peers that ``failed`` have no times.
    """
    failed = {name: why for name, why in (failed or {}).items() if name in peers}
    medians = {name: statistics.median(times[name]) for name in (mine, *peers) if name not in failed}
    ours = medians.pop(mine)
    best = min(medians, key=lambda name: medians[name], default=mine)
    ratio = statistics.median(b / a for a, b in zip(times[mine], times[best], strict=True))
    return Row(case, "ms", ours, medians, ratio, failed=failed)


def report(rows: Iterable[Row], path: Path | None) -> None:
    """Print each row as soon as it is known, and write all of them to ``path``."""
    printed = []
    for line in rows:
        print(line, flush=True)
        printed.append(line)
    write_rows(path, printed)


def write_rows(path: Path | None, rows: Iterable[Row]) -> None:
    """Write the rows as JSON; nothing without a ``path``."""
    if path:
        path.write_text(json.dumps([asdict(line) for line in rows], indent=2) + "\n")
