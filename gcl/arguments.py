"""arguments: what is asked of numbers that a program gives."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard

from gcl.errors import ArgumentError

__all__ = ["check_seconds", "check_whole", "is_whole"]

#: Longer waits are no waits: clocks of C count them in 64 bits of nanoseconds.
_MOST_SECONDS = 1e9


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether ``value`` is a whole number, Python's or numpy's, of at least ``least``; a bool is none."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def check_whole(value: object, name: str, least: int = 0) -> None:
    """Raise ArgumentError unless ``value`` is a whole number of at least ``least``."""
    if not is_whole(value, least):
        raise ArgumentError(f"{name}={value!r} was asked for; give a whole number of at least {least}")


def check_seconds(value: object, name: str) -> None:
    """Raise ArgumentError unless ``value`` is a number of seconds that can be waited for."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= _MOST_SECONDS:
        raise ArgumentError(f"{name}={value!r} was asked for; give seconds above 0, at most {_MOST_SECONDS:g}")
