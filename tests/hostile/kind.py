"""Kind: one kind of hostile trial, and the result of a trial."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

__all__ = ["Kind", "Trial", "Unavailable"]

#: One trial: everything random is drawn from the argument; the result says what was not as promised, a line each.
Trial = Callable[[random.Random], list[str]]


class Unavailable(Exception):
    """A kind cannot run on this machine; the text says why."""


@dataclass(frozen=True)
class Kind:
    """``source`` is ``module:function`` below tests.hostile; the function is a context that makes the trial.

    Trials run ``isolated``, or in the surroundings of this process. ``share`` is the part of the time that the kind
    gets, relative to others; a trial that takes more than ``limit`` seconds hangs.
    """

    name: str
    about: str
    source: str
    argument: str = ""
    isolated: bool = True
    share: float = 1.0
    limit: float = 120.0

    def load(self) -> Callable[..., AbstractContextManager[Trial]]:
        """Import what the trials need; processes that are forked after this have it."""
        module, _, name = self.source.partition(":")
        found: Callable[..., AbstractContextManager[Trial]] = getattr(import_module(f"tests.hostile.{module}"), name)
        return found

    def opened(self) -> AbstractContextManager[Trial]:
        """The trial, once what all trials share is set up; raise Unavailable if that cannot be."""
        function = self.load()
        made: Callable[[], AbstractContextManager[Trial]] = (
            partial(function, self.argument) if self.argument else function
        )
        return made()

    def dice(self, seed: int) -> random.Random:
        """The random numbers of one trial."""
        return random.Random(f"{self.name} {seed}")
