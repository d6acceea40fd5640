"""units: numbers with the unit in which they say something: 669.7 k, 8.28 G, 3.12 KiB."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "decimal", "memory"]

_DECIMAL = ("", "k", "M", "G", "T", "P")
_MEMORY = ("B", "KiB", "MiB", "GiB", "TiB")


def counted(count: int, noun: str) -> str:
    """``1 slot``, ``2 slots``, ``3 micro-batches``."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def decimal(value: float, unit: str) -> str:
    """``8.28 GFLOP``: powers of 1,000, three digits."""
    return _scaled(value, 1000, [prefix + unit for prefix in _DECIMAL])


def memory(nbytes: float) -> str:
    """``3.12 MiB``: powers of 1,024, three digits, as memories are built."""
    return _scaled(nbytes, 1024, _MEMORY)


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while power < len(units) - 1 and value >= base - 0.5:
        value, power = value / base, power + 1
    digits = 0 if power == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {units[power]}"
