"""Log: the launcher's own messages on stderr, and PopRun's log lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

INFO, DEBUG = 1, 2
_LETTERS = {INFO: "I", DEBUG: "D"}


class Log:
    """PopRun's log lines, ``HH:MM:SS.mmm <pid> POPRUN [I] message``, as many as ``verbosity`` (0, 1, 2) selects."""

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
        line = f"{clock} {os.getpid()} POPRUN [{_LETTERS[level]}] {printable(message)}\n"
        self._write(line.encode(errors="surrogateescape"))


def say(line: str) -> None:
    """Write a message outside a job, on stderr; control characters are escaped, bytes that are no UTF-8 kept."""
    write_stderr(os.fsencode(f"poprun-py: {printable(line)}\n"))


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped, which may come from a program, and bytes that are no UTF-8."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def write_stderr(data: bytes) -> None:
    """Write ``data`` unchanged, and in order with what was written as text."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def _escaped(letter: str) -> str:
    is_undecoded_byte = "\udc80" <= letter <= "\udcff"
    return letter if letter.isprintable() or is_undecoded_byte else repr(letter)[1:-1]
