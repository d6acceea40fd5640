"""Errors of poprun_py.

PoprunError             anything the user is told in one line; carries the exit code of the launcher
+-- UsageError          mistakes of a command line, all together
+-- ProgramError        a program that cannot be started
+-- MpiNotFoundError    no MPI that fits
+-- VipuBusyError       a partition, or the file of partitions, that others hold
+-- ChannelError        a peer that is not what it says it is, or broke the protocol
    +-- ChannelClosed   a peer that is gone
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ChannelClosed",
    "ChannelError",
    "MpiNotFoundError",
    "PoprunError",
    "ProgramError",
    "UsageError",
    "VipuBusyError",
]


class PoprunError(Exception):
    """Base of every error of this package."""

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """What the user is shown, one mistake a line."""
        return (str(self),)


class UsageError(PoprunError):
    """Mistakes of one command line, all together."""

    exit_code = 2

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = tuple(mistakes)

    @property
    def lines(self) -> tuple[str, ...]:
        return self.mistakes


class ProgramError(PoprunError):
    """A program that cannot be started; the exit code is the one a shell would give (127 or 126)."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MpiNotFoundError(PoprunError):
    """No MPI that fits what was asked."""

    exit_code = 2


class VipuBusyError(PoprunError):
    """Another job holds the partition, or the file of partitions; waiting may help."""


class ChannelError(PoprunError):
    """A peer broke the protocol of the channel."""


class ChannelClosed(ChannelError):
    """The peer is gone."""
