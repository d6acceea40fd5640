"""Watch: shows how the instances fare while the job runs: the live view on a terminal, else a few plain lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from poprun_py.linux.timers import Alarms
from poprun_py.output.progress_table import Row, View
from poprun_py.output.screen import Screen
from poprun_py.plan.launch_plan import LaunchPlan

__all__ = ["Watch"]

#: Seconds until the live view appears, and between two pictures of it or two groups of plain lines.
_FIRST_PICTURE, _PICTURES, _PLAIN_LINES = 1.0, 0.5, 10.0


class Watch:
    """``wanted`` is the value of --progress; ``state`` tells an instance's pid and what it does."""

    def __init__(
        self,
        plan: LaunchPlan,
        screen: Screen,
        alarms: Alarms,
        *,
        wanted: str,
        state: Callable[[int], tuple[int, str]],
    ) -> None:
        self._screen = screen
        self._alarms = alarms
        self._wanted = wanted
        self._state = state
        self._view = View([Row(each.index, each.host) for each in plan.instances], began=time.monotonic())

    @property
    def rows(self) -> list[Row]:
        return self._view.rows

    @property
    def interval(self) -> float:
        """Seconds between two messages of an instance on what it takes; many instances do it less often."""
        if not self._screen.has_pictures and self._wanted != "on":
            return 0.0
        return max(1.0, len(self.rows) / 16)

    def start(self) -> None:
        if self._screen.has_pictures:
            self._alarms.set(_FIRST_PICTURE, self._draw)
        elif self._wanted == "on":
            self._alarms.set(_PLAIN_LINES, self._tell)

    def _draw(self) -> None:
        columns, lines = os.get_terminal_size(self._screen.terminals[-1])
        self._refresh()
        color = self._screen.has_color
        self._screen.draw(self._view.picture(time.monotonic(), columns=columns, lines=lines, color=color))
        self._alarms.set(_PICTURES, self._draw)

    def _tell(self) -> None:
        self._refresh()
        for line in self._view.plain(time.monotonic()):
            self._screen.stderr(line.encode(errors="surrogateescape") + b"\n")
        self._alarms.set(_PLAIN_LINES, self._tell)

    def _refresh(self) -> None:
        for row in self.rows:
            row.pid, row.state = self._state(row.index)
