"""Argument checks: conditions on the numbers that a program passes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard

from gcl.errors import ArgumentError

#: The longest wait, in seconds: the clocks of C count nanoseconds in 64 bits.
_MOST_SECONDS = 1e9


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether ``value`` is an integer of Python or numpy, but not a bool, and at least ``least``."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def check_whole(value: object, name: str, least: int = 0) -> None:
    """Raise ArgumentError unless ``value`` is a whole number of at least ``least``."""
    if not is_whole(value, least):
        raise ArgumentError(f"{name}={value!r} is not valid; give a whole number of at least {least}")


def check_seconds(value: object, name: str, *, zero: bool = False) -> None:
    """Raise ArgumentError unless ``value`` is a number of seconds that can be waited for, or 0 if ``zero``."""
    seconds = -1.0 if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (0 < seconds <= _MOST_SECONDS or (zero and seconds == 0)):
        least = "0 seconds or more" if zero else "seconds above 0"
        raise ArgumentError(f"{name}={value!r} is not valid; give {least}, at most {_MOST_SECONDS:g}")
