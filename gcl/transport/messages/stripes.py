"""stripe_of: which elements of every tensor, or fragment, one rank of a host carries across."""

from __future__ import annotations

__all__ = ["Stripe", "stripe_of"]

#: (position, number) of a rank among those of its host that carry.
Stripe = tuple[int, int]

_LINE = 64  # bytes; stripe_of begin on one


def stripe_of(width: int, itemsize: int, part: Stripe) -> tuple[int, int]:
    """The elements [low, high) out of ``width`` that are the ``part``'s: whole cache lines, as even as they go."""
    unit = _LINE // itemsize
    position, number = part
    units = -(-width // unit)
    low, high = (min(width, units * p // number * unit) for p in (position, position + 1))
    return low, high
