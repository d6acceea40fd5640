"""Benchmark table: the results of ``python -m gcl.bench``, a row per size, as text (like nccl-tests) and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Timing:
    """Out-of-place or in-place part of a row: wall time of the slowest rank; wrong elements (None: not checked)."""

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class Row:
    """Results for one size; ``modelled_us`` is None if there is no model (odd replicas on a ladder)."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Timing
    in_place: Timing | None
    modelled_us: float | None

    @property
    def timings(self) -> list[Timing]:
        return [self.out_of_place] if self.in_place is None else [self.out_of_place, self.in_place]


@dataclass(frozen=True)
class RunHeader:
    """The values that all rows share."""

    collective: str
    replicas: int
    processes: int
    transport: str
    method: str


_WIDTHS = (12, 12, 9, 11, 5)
_TIMING = (10, 8, 8, 7)
_MODELLED = 10


def heading(run: RunHeader) -> str:
    """The lines above the rows."""
    half, units = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
    left, wide = sum(_WIDTHS) + len(_WIDTHS) - 1, sum(_TIMING) + len(_TIMING) - 1
    processes = "1 process" if run.processes == 1 else f"{run.processes} processes"
    lines = [
        f" {run.collective} of {run.replicas} replicas in {processes}, {run.transport}, method {run.method}",
        "",
        f"{'':{left}} {'out-of-place (wall)':^{wide}} {'in-place (wall)':^{wide}} {'IPU':>{_MODELLED}}"[1:],
        _cells(("size", "count", "type", "redop", "root", *half, *half, "modelled"))[1:],
        _cells(("(B)", "(elements)", "", "", "", *units, *units, "(us)"))[1:],
    ]
    return "\n".join(f"#{line}" for line in lines)


def line(row: Row) -> str:
    """The text of one row."""
    modelled = "-" if row.modelled_us is None else f"{row.modelled_us:.2f}"
    what = (row.size, row.count, row.type, row.redop, row.root)
    return _cells((*what, *_timed(row.out_of_place), *_timed(row.in_place), modelled))


def summary(rows: list[Row]) -> str:
    """The lines below the rows."""
    checked = [timing.wrong for row in rows for timing in row.timings if timing.wrong is not None]
    verdict = f"{sum(checked)} {'FAILED' if sum(checked) else 'OK'}" if checked else "not checked"
    return f"# Wrong values      : {verdict}\n# Avg bus bandwidth : {_average(rows):.4f} GB/s"


def wrong(rows: list[Row]) -> bool:
    """Whether any result was wrong."""
    return any(timing.wrong for row in rows for timing in row.timings)


def document(run: RunHeader, rows: list[Row]) -> str:
    """The whole table as JSON."""
    table = {**asdict(run), "average_busbw": _average(rows), "rows": [asdict(row) for row in rows]}
    return json.dumps(table, indent=2)


def _timed(timing: Timing | None) -> tuple[object, ...]:
    if timing is None:
        return ("-",) * len(_TIMING)
    numbers = (f"{timing.time_us:.2f}", f"{timing.algbw:.3f}", f"{timing.busbw:.3f}")
    return (*numbers, "-" if timing.wrong is None else timing.wrong)


def _cells(values: Sequence[object]) -> str:
    widths = (*_WIDTHS, *_TIMING, *_TIMING, _MODELLED)
    return " ".join(f"{value!s:>{width}}" for value, width in zip(values, widths, strict=True))


def _average(rows: list[Row]) -> float:
    bandwidths = [timing.busbw for row in rows for timing in row.timings]
    return sum(bandwidths) / max(1, len(bandwidths))
