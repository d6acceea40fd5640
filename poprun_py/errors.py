"""Errors: the exceptions of poprun_py.

PoprunError             base class: a message for the user, and the exit code of the launcher
+-- UsageError          all mistakes of a command line
+-- ProgramError        a program that cannot be started
+-- MpiNotFoundError    no MPI that meets the request
+-- VipuBusyError       a partition, or the partition file, that another job holds
+-- ChannelError        a peer that failed to authenticate itself, or violated the protocol
    +-- ChannelClosed   a peer that closed the connection
"""

from __future__ import annotations

from collections.abc import Sequence

PROCESS_LIMIT_ADVICE = "raise the limit of processes (ulimit -u, or pids.max of the control group)"


class PoprunError(Exception):
    """Base class of all exceptions of poprun_py."""

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to show to the user, one for each mistake."""
        return (str(self),)


class UsageError(PoprunError):
    """All mistakes of one command line."""

    exit_code = 2

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = tuple(mistakes)

    @property
    def lines(self) -> tuple[str, ...]:
        return self.mistakes


class ProgramError(PoprunError):
    """A program that cannot be started; the exit code is a shell's (127 not found, 126 not executable)."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MpiNotFoundError(PoprunError):
    """No MPI installation that meets the request."""

    exit_code = 2


class VipuBusyError(PoprunError):
    """Another job holds the partition, or the partition file; waiting may help."""


class ChannelError(PoprunError):
    """A peer failed to authenticate itself, or violated the protocol of the channel."""


class ChannelClosed(ChannelError):
    """The peer has closed the connection."""
