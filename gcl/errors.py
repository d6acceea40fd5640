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
        other, differing = next(pair for pair in rest if pair[1].partition(" at ")[0] != call.partition(" at ")[0])
        return cls(
            f"{first} called {call}, but {other} called {differing}; "
            "every rank must make the same calls in the same order"
        )


class CollectiveTimeout(GclError, TimeoutError):
    """A rank did not arrive in time."""


class PeerLost(GclError):
    """A rank died, or left, while others wait for it."""


class TransportError(GclError):
    """The transport that was asked for does not work here."""
