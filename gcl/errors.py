"""Errors of gcl.

GclError
+-- ArgumentError         shapes, dtypes, operators or groups that are not valid
+-- CollectiveMismatch    ranks that called different collectives
+-- CollectiveTimeout     a rank that did not make the call in time
+-- PeerLost              a rank that died or left while others wait
+-- TransportError        memory or messages that do not work here
"""

from __future__ import annotations

import re

from popdist_py.supervisor_socket import notify


class GclError(RuntimeError):
    """Base of every error of this package.

    ``peer`` is the rank that caused it, as messages name it, "" for none; ``left``: that rank has said so itself.
    """

    peer, left = "", False


class ArgumentError(GclError, ValueError):
    """An argument of a call is not valid."""


class CollectiveMismatch(GclError):
    """The ranks called different collectives, or the same one with different arguments."""

    @classmethod
    def between(cls, calls: list[tuple[str, str]]) -> CollectiveMismatch:
        """The error from (rank, "call at file:line") of every rank: it names the first two calls that differ."""
        (first, call), *rest = calls
        different = (pair for pair in rest if pair[1].partition(" at ")[0] != call.partition(" at ")[0])
        other, differing = next(different, rest[0])  # long calls are shortened
        return cls(
            f"{first} called {call}, but {other} called {differing}; "
            "every rank must make the same calls in the same order"
        )

    @classmethod
    def crossed(cls, first: tuple[str, str], other: tuple[str, str]) -> CollectiveMismatch:
        """The error from (rank, "call at file:line") of two ranks that wait for each other in two communicators."""
        return cls(
            f"{first[0]} called {first[1]}, but {other[0]} called {other[1]} of another communicator, and they wait "
            "for each other; every rank must call its communicators in the same order"
        )

    @classmethod
    def refused(cls, waiting: object, who: str, reason: str) -> CollectiveMismatch:
        """The error of the call ``waiting``, which waits for a rank whose own call was refused."""
        error = cls(f"{waiting} waits for {who}, whose call was refused: {reason}")
        error.peer, error.left = who, True
        return error


class CollectiveTimeout(GclError, TimeoutError):
    """A rank did not arrive in time."""


class PeerLost(GclError):
    """A rank died or left while others wait for it; ``reason`` is the reason that it published, "" for none."""

    def __init__(self, text: str, reason: str = "", peer: str = "", *, left: bool = False) -> None:
        super().__init__(text)
        self.reason, self.peer, self.left = reason, peer, left

    @classmethod
    def departed(cls, waiting: object, who: str, reason: str) -> PeerLost:
        """The error of the call ``waiting``, which waits for a rank that published why it left."""
        return cls(f"{waiting} waits for {who}, which has left: {reason}", reason, who, left=True)


class TransportError(GclError):
    """The chosen transport does not work here."""


def reason_of(error: BaseException | None) -> str:
    """The reason to publish to ranks that wait for this one, which ended with ``error``; "" for none.

    If another rank caused the error, the reason is that of the other rank.
    """
    if isinstance(error, PeerLost) and error.reason:
        return error.reason
    return str(error) if isinstance(error, GclError) else ""


def notify_supervisor(error: BaseException) -> None:
    """If a peer caused ``error``, notify the supervisor of this process, before its program can react."""
    if isinstance(error, GclError) and error.peer:
        rank = re.search(r"\brank (\d+)", error.peer)
        notify(f"{'left' if error.left else 'lost'} {rank[1] if rank else -1}")
