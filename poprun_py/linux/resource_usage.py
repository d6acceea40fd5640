"""Usage: the CPU time and the memory of a program and of all that it has started, as /proc tells them."""

from __future__ import annotations

import os

__all__ = ["usage"]

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

#: Fields of /proc/PID/stat behind the name: user and system time, and those of children that have ended; pages.
_TIMES, _RSS = slice(11, 15), 21


def usage(pid: int) -> tuple[float, int]:
    """Seconds of CPU since its start, and resident bytes now."""
    seconds, size = 0.0, 0
    family = [pid]
    for member in family:  # grows while it is walked
        try:
            with open(f"/proc/{member}/stat", "rb") as stream:
                fields = stream.read().rpartition(b")")[2].split()
            family += _children(member)
        except OSError:  # it is gone
            continue
        seconds += sum(map(int, fields[_TIMES])) / _TICKS
        size += int(fields[_RSS]) * _PAGE
    return seconds, size


def _children(pid: int) -> list[int]:
    """Of all its threads, where the kernel lists them."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as stream:
                found += map(int, stream.read().split())
        except OSError:
            continue
    return found
