"""Log: PopRun's log lines, ``HH:MM:SS.mmm <pid> POPRUN [I] message``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["DEBUG", "INFO", "Log"]

INFO, DEBUG = 1, 2
_LETTERS = {INFO: "I", DEBUG: "D"}


class Log:
    """Writes the lines that ``verbosity`` (0, 1, 2) asks for through ``write``."""

    def __init__(self, verbosity: int, write: Callable[[bytes], None]) -> None:
        self._verbosity = verbosity
        self._write = write

    def info(self, message: str) -> None:
        self._line(INFO, message)

    def debug(self, message: str) -> None:
        self._line(DEBUG, message)

    def _line(self, level: int, message: str) -> None:
        if level > self._verbosity:
            return
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"
        line = f"{clock} {os.getpid()} POPRUN [{_LETTERS[level]}] {message}\n"
        self._write(line.encode(errors="surrogateescape"))
