"""Errors of gcl.

GclError
+-- ArgumentError         shapes, dtypes, operators or groups that cannot be
+-- CollectiveMismatch    ranks that called different collectives
+-- CollectiveTimeout     a rank that never arrived
+-- PeerLost              a rank that died or left while others wait
+-- TransportError        memory or messages that cannot be shared here
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "GclError",
    "PeerLost",
    "TransportError",
    "reason_of",
]


class GclError(RuntimeError):
    """Base of every error of this package."""


class ArgumentError(GclError, ValueError):
    """A collective was asked for something that cannot be."""


class CollectiveMismatch(GclError):
    """The ranks called different collectives, or the same one with different arguments."""

    @classmethod
    def between(cls, calls: list[tuple[str, str]]) -> CollectiveMismatch:
        """From (who, "call at file:line") of every rank: name the first two that differ."""
        (first, call), *rest = calls
        different = (pair for pair in rest if pair[1].partition(" at ")[0] != call.partition(" at ")[0])
        other, differing = next(different, rest[0])  # long calls are not said in full
        return cls(
            f"{first} called {call}, but {other} called {differing}; "
            "every rank must make the same calls in the same order"
        )

    @classmethod
    def crossed(cls, one: tuple[str, str], other: tuple[str, str]) -> CollectiveMismatch:
        """From (who, "call at file:line") of two ranks that wait for each other in two communicators."""
        return cls(
            f"{one[0]} called {one[1]}, but {other[0]} called {other[1]} of another communicator, and they wait for "
            "each other; every rank must call its communicators in the same order"
        )

    @classmethod
    def refused(cls, waiting: object, who: str, reason: str) -> CollectiveMismatch:
        """``waiting`` for a rank whose arguments were refused, so that it does not come."""
        return cls(f"{waiting} waits for {who}, whose call was refused: {reason}")


class CollectiveTimeout(GclError, TimeoutError):
    """A rank did not arrive in time."""


class PeerLost(GclError):
    """A rank died, or left, while others wait for it; ``reason`` is the one it gave, if any."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason

    @classmethod
    def left(cls, waiting: object, who: str, reason: str) -> PeerLost:
        """``waiting`` for a rank that said why it takes part no more."""
        return cls(f"{waiting} waits for {who}, which has left: {reason}", reason)


class TransportError(GclError):
    """The transport that was asked for does not work here."""


def reason_of(error: BaseException | None) -> str:
    """What to tell ranks that wait for this one, which ends with ``error``: the cause of the first, "" for none."""
    if isinstance(error, PeerLost) and error.reason:
        return error.reason
    return str(error) if isinstance(error, GclError) else ""
