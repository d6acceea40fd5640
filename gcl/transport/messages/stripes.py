"""columns: which elements of every tensor, or fragment, one rank of a host carries across."""

from __future__ import annotations

__all__ = ["Part", "columns"]

#: (position, number) of a rank among those of its host that carry.
Part = tuple[int, int]

_LINE = 64  # bytes; columns begin on one


def columns(width: int, itemsize: int, part: Part) -> tuple[int, int]:
    """The elements [low, high) out of ``width`` that are the ``part``'s: whole cache lines, as even as they go."""
    unit = _LINE // itemsize
    position, number = part
    units = -(-width // unit)
    low, high = (min(width, units * p // number * unit) for p in (position, position + 1))
    return low, high
