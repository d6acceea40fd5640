"""Leftovers: finds new processes and files, as seen by an isolated process."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.helpers.patience import Patience
from tests.poprun_py.helpers import random_kills

__all__ = ["Leftovers", "commands"]


class Leftovers:
    """Processes and files that are new since this object was created; in an isolated trial all belong to its jobs."""

    def __init__(self) -> None:
        self._files = set(random_kills.leftovers())
        self._pids = set(commands())

    def processes(self, within: float) -> list[str]:
        """A fault if processes are left after ``within`` seconds."""
        patience = Patience(within)
        while left := {pid: words for pid, words in commands().items() if pid not in self._pids}:
            if patience.is_over:
                return [f"processes left: {left}"]
            time.sleep(0.02)
        return []

    def files(self) -> list[str]:
        """A fault if files are left."""
        left = [name for name in random_kills.leftovers() if name not in self._files]
        return [f"files left: {left}"] if left else []


def commands() -> dict[int, str]:
    """The command lines of all living processes, by pid."""
    commands_by_pid = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            commands_by_pid[pid] = words
    return commands_by_pid
