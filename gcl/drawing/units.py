"""Units: quantities as text, and byte sizes read from options.

memory(3271557)           3.12 MiB       what memories hold: powers of 1,024
decimal(8.28e9, "FLOP")   8.28 GFLOP     everything else: powers of 1,000
TimeUnit.of(2.06e-5)      microseconds   one unit for all times of one line, table or axis
counted(3, "slot")        3 slots
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from gcl.errors import ArgumentError

#: A bare letter is binary, as in nccl-tests.
_SIZES = {"": 1}
_SIZES |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_SIZES |= {f"{letter}{end}": 1024**power for power, letter in enumerate("kmgt", 1) for end in ("", "ib")}

_DECIMAL = ("", "k", "M", "G", "T", "P")
_MEMORY = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_bytes(text: str, option: str) -> int:
    """Parse a number of bytes: 51e6, 64 kB, 1MiB, 8M; raise ArgumentError naming ``option`` for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\+?\d{1,2})?)\s*([kmgt](?:i?b)?)?\s*", text.lower())
    nbytes = float(match[1]) * _SIZES[match[2] or ""] if match else -1.0
    if not 0 <= nbytes <= 1e15:
        raise ArgumentError(f"{option} {text} is not valid; write a number up to 1e15, such as 51e6, 64kB or 1GiB")
    return int(nbytes)


def counted(count: int, noun: str) -> str:
    """A count and its noun: ``1 slot``, ``2 slots``, ``3 micro-batches``."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def decimal(value: float, unit: str) -> str:
    """``8.28 GFLOP``: powers of 1,000, three digits."""
    return _scaled(value, 1000, [prefix + unit for prefix in _DECIMAL])


def memory(nbytes: float) -> str:
    """``3.12 MiB``: powers of 1,024, three digits."""
    return _scaled(nbytes, 1024, _MEMORY)


class TimeUnit(Enum):
    """A unit of time by its name, with its seconds."""

    us = 1e-6
    ms = 1e-3
    s = 1.0

    @classmethod
    def of(cls, seconds: float) -> TimeUnit:
        """The largest unit of which ``seconds`` are at least ten, else microseconds."""
        return next((unit for unit in reversed(cls) if seconds >= 10 * unit.value), cls.us)

    def number(self, seconds: float) -> str:
        """``20.6``: ``seconds`` in this unit."""
        return f"{seconds / self.value:,.1f}"

    def text(self, seconds: float) -> str:
        """``20.6 us``."""
        return f"{self.number(seconds)} {self.name}"


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while power < len(units) - 1 and value >= base - 0.5:
        value, power = value / base, power + 1
    digits = 0 if power == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {units[power]}"
