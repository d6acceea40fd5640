"""Usage errors: all mistakes of one command, collected and reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

import popdist_py
from gcl.errors import GclError

__all__ = ["UsageErrors"]

Made = TypeVar("Made")


class UsageErrors:
    """Collects the errors of what a command is made from."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def of(self, make: Callable[[], Made]) -> Made | None:
        """What ``make`` makes; None, and its fault kept, if it cannot."""
        try:
            return make()
        except (GclError, popdist_py.PopdistError) as error:
            self._texts.append(str(error))
            return None

    def error(self) -> click.UsageError:
        """All of them as one error, exit code 2."""
        return click.UsageError("; ".join(self._texts))

    def check(self) -> None:
        """Raise ``error`` if there are any."""
        if self._texts:
            raise self.error()
