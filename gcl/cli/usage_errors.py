"""Usage errors: all mistakes in the options of a command, collected and reported as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

import popdist_py
from gcl.errors import GclError

T = TypeVar("T")


class UsageErrors:
    """Collects the errors raised while the options of a command are read."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def of(self, make: Callable[[], T]) -> T | None:
        """The result of ``make``; if it raises, keep the error and return None."""
        try:
            return make()
        except (GclError, popdist_py.PopdistError) as error:
            self._texts.append(str(error))
            return None

    def error(self) -> click.UsageError:
        """All collected errors as one, with exit code 2."""
        return click.UsageError("; ".join(self._texts))

    def check(self) -> None:
        """Raise ``error`` if any error was collected."""
        if self._texts:
            raise self.error()
