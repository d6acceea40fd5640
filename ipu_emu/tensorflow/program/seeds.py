"""Seeds: the seed of random numbers that programs set for their device."""

from __future__ import annotations

__all__ = ["seed", "set_seed"]

_seed = [0, 0]


def set_seed(value: int) -> None:
    """Set the seed; programs start counting their runs anew."""
    _seed[:] = [value & 0xFFFFFFFFFFFFFFFF, _seed[1] + 1]


def seed() -> tuple[int, int]:
    """The seed, and how often it was set."""
    return _seed[0], _seed[1]
