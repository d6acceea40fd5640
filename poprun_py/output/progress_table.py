"""Progress table: a row per instance: its state, resources and progress; for a terminal, or as plain lines."""

from __future__ import annotations

import io
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from poprun_py.wire.messages import Report, Usage

#: Seconds over which samples/s is averaged.
_WINDOW = 5.0

_STYLES = {"running": "green", "done": "green", "starting": "dim", "ending": "yellow", "ended": "yellow"}


@dataclass
class InstanceRow:
    """One row of the table: the known state of an instance; times are monotonic seconds."""

    index: int
    host: str
    nodes: str = ""
    pid: int = 0
    state: str = "starting"
    cpu: float | None = None  # percent of one CPU
    rss: int = 0
    step: int = -1
    loss: float = math.nan
    _usage: tuple[float, float] | None = None  # (time, seconds of CPU)
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def update_usage(self, usage: Usage, now: float) -> None:
        if self._usage and now > self._usage[0]:
            self.cpu = max(0.0, 100 * (usage.cpu - self._usage[1]) / (now - self._usage[0]))
        self._usage, self.rss = (now, usage.cpu), usage.rss

    def update_report(self, report: Report, now: float) -> None:
        self.step, self.loss = report.step, report.loss
        self._samples.append((now, report.samples))
        while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        """Return samples per second over the last seconds; None if no samples were reported."""
        if len(self._samples) < 2 or not self._samples[-1][1]:
            return None
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        end = now if now - last > _WINDOW else last
        return (after - before) / (end - first)

    def cells(self, now: float) -> dict[str, str]:
        """Return column -> text, empty where nothing is known."""
        rate = self.rate(now)
        return {
            "instance": str(self.index),
            "host": self.host,
            "pid": str(self.pid or ""),
            "state": self.state,
            "CPU %": "" if self.cpu is None else f"{self.cpu:.0f}",
            "RSS": _size(self.rss) if self.rss else "",
            "NUMA": self.nodes,
            "step": f"{self.step:,}" if self.step >= 0 else "",
            "loss": "" if math.isnan(self.loss) else f"{self.loss:.4g}",
            "samples/s": "" if rate is None else f"{rate:,.0f}",
        }


class ProgressTable:
    """A row per instance: drawn with rich for a terminal, or as plain lines."""

    def __init__(self, rows: Sequence[InstanceRow], *, started_at: float) -> None:
        self.rows = list(rows)
        self._started_at = started_at

    def render(self, now: float, *, columns: int, lines: int, color: bool) -> bytes:
        """Draw a table of at most ``columns`` x ``lines``; instances that are not running have priority."""
        from rich.console import Console  # slow to import
        from rich.table import Table
        from rich.text import Text

        stream = io.StringIO()
        console = Console(
            file=stream,
            force_terminal=True,
            width=columns,
            color_system="standard" if color else None,
            legacy_windows=False,
            highlight=False,
        )
        shown, hidden = self._chosen(max(1, lines - 4))
        cells = [row.cells(now) for row in shown]
        names = _fitting(self._columns(cells), cells, columns)
        table = Table(box=None, pad_edge=False, header_style="bold" if color else "", padding=(0, 2, 0, 0))
        for name in names:
            justify: Any = "left" if name in ("host", "state") else "right"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
        for row in cells:
            style = _STYLES.get(row["state"], "bold red") if color else ""
            table.add_row(*(Text(row[name], style if name == "state" else "") for name in names))
        console.rule(self.title(now), characters="-", style="dim" if color else "", align="left")
        console.print(table)
        if hidden:
            console.print(f"... and {hidden} more")
        return stream.getvalue().encode(errors="replace")

    def plain_lines(self, now: float) -> Iterator[str]:
        """Yield a line for the job, and one for each instance."""
        yield self.title(now)
        for row in self.rows:
            cells = row.cells(now)
            values = [f"{name} {text}" for name, text in cells.items() if text and name not in ("instance", "state")]
            yield f"    instance {row.index} {row.state}: {', '.join(values)}"

    def title(self, now: float) -> str:
        """Return the time since the start, the number of instances in each state, and the samples/s of all."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.state] = counts.get(row.state, 0) + 1
        parts = [_duration(now - self._started_at), *(f"{count} {state}" for state, count in counts.items())]
        rates = [rate for row in self.rows if (rate := row.rate(now)) is not None]
        parts += [f"{sum(rates):,.0f} samples/s"] if rates else []
        return f"poprun-py  {', '.join(parts)}"

    def _chosen(self, count: int) -> tuple[list[InstanceRow], int]:
        if len(self.rows) <= count:
            return self.rows, 0
        not_running_first = sorted(self.rows, key=lambda row: (row.state == "running", row.index))
        return sorted(not_running_first[:count], key=lambda row: row.index), len(self.rows) - count

    def _columns(self, cells: Sequence[dict[str, str]]) -> list[str]:
        """The columns that are always shown, and those in which something is known."""
        always = ("instance", "host", "pid", "state", "CPU %", "RSS")
        return [name for name in cells[0] if name in always or any(row[name] for row in cells)]


#: The columns that are dropped on a narrow terminal, in this order.
_DISPENSABLE = ("NUMA", "pid", "host", "RSS", "CPU %")


def _fitting(names: list[str], cells: Sequence[dict[str, str]], columns: int) -> list[str]:
    """The columns that there is room for; the state and what the program reports stay."""

    def width() -> int:
        return sum(2 + max(len(name), *(len(row[name]) for row in cells)) for name in names)

    for name in _DISPENSABLE:
        if name in names and width() > columns:
            names.remove(name)
    return names


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    total = int(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes:02d}:{total % 60:02d}"
