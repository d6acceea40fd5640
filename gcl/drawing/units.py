"""Units: quantities as text: byte sizes read from options (51e6, 64 kB, 1MiB, 8M), and counts with a noun."""

from __future__ import annotations

import re

from gcl.errors import ArgumentError

__all__ = ["counted", "parse_bytes"]

#: A bare letter is binary, as in nccl-tests.
_UNITS = {"": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}{end}": 1024**power for power, letter in enumerate("kmgt", 1) for end in ("", "ib")}


def parse_bytes(text: str, option: str) -> int:
    """Bytes that ``text`` means; raise ArgumentError naming ``option`` for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\+?\d{1,2})?)\s*([kmgt](?:i?b)?)?\s*", text.lower())
    nbytes = float(match[1]) * _UNITS[match[2] or ""] if match else -1.0
    if not 0 <= nbytes <= 1e15:
        raise ArgumentError(f"{option} {text} was given; write a number up to 1e15, such as 51e6, 64kB or 1GiB")
    return int(nbytes)


def counted(count: int, noun: str) -> str:
    """Return a count and its noun: ``1 slot``, ``2 slots``, ``3 micro-batches``."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
