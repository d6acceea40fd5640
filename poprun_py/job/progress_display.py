"""Progress display: the progress table while the job runs: redrawn on a terminal, else as plain lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from poprun_py.linux.event_sources import Timers
from poprun_py.output.progress_table import InstanceRow, ProgressTable
from poprun_py.output.screen import Screen
from poprun_py.plan.launch_plan import LaunchPlan

#: Seconds until the table first appears, and between two drawings of it or two groups of plain lines.
_FIRST_DRAWING, _REDRAWING, _PLAIN_LINES = 1.0, 0.5, 10.0


class ProgressDisplay:
    """``mode`` is the value of --progress; ``state`` returns the pid and the state of an instance."""

    def __init__(
        self,
        plan: LaunchPlan,
        screen: Screen,
        timers: Timers,
        *,
        mode: str,
        state: Callable[[int], tuple[int, str]],
    ) -> None:
        self._screen = screen
        self._timers = timers
        self._mode = mode
        self._state = state
        self._table = ProgressTable(
            [InstanceRow(instance.index, instance.host) for instance in plan.instances], started_at=time.monotonic()
        )

    @property
    def rows(self) -> list[InstanceRow]:
        return self._table.rows

    @property
    def interval(self) -> float:
        """Seconds between two usage messages of an instance: longer with many instances; 0 if there is no display."""
        if not self._screen.has_live_view and self._mode != "on":
            return 0.0
        return max(1.0, len(self.rows) / 16)

    def start(self) -> None:
        if self._screen.has_live_view:
            self._timers.call_later(_FIRST_DRAWING, self._draw)
        elif self._mode == "on":
            self._timers.call_later(_PLAIN_LINES, self._print)

    def _draw(self) -> None:
        try:
            columns, lines = os.get_terminal_size(self._screen.terminals[-1])
        except OSError:  # the terminal is gone; the next write reports it
            columns, lines = 80, 24
        self._refresh()
        color = self._screen.has_color
        self._screen.draw(self._table.render(time.monotonic(), columns=columns, lines=lines, color=color))
        self._timers.call_later(_REDRAWING, self._draw)

    def _print(self) -> None:
        self._refresh()
        for line in self._table.plain_lines(time.monotonic()):
            self._screen.stderr(line.encode(errors="surrogateescape") + b"\n")
        self._timers.call_later(_PLAIN_LINES, self._print)

    def _refresh(self) -> None:
        for row in self.rows:
            row.pid, row.state = self._state(row.index)
