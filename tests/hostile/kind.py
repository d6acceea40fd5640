"""Kind: one kind of hostile trial, and the result of a trial."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

__all__ = ["Kind", "Trial", "Unavailable"]

#: One trial: all random choices are drawn from the argument; the result lists the faults, a line each.
Trial = Callable[[random.Random], list[str]]


class Unavailable(Exception):
    """A kind cannot run on this machine; the text is the reason."""


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
        """Import the modules of the trials, for processes that are forked afterwards."""
        module, _, name = self.source.partition(":")
        trial: Callable[..., AbstractContextManager[Trial]] = getattr(import_module(f"tests.hostile.{module}"), name)
        return trial

    def opened(self) -> AbstractContextManager[Trial]:
        """The trial, once the set-up that all trials share is complete; raise Unavailable if that fails."""
        function = self.load()
        trial: Callable[[], AbstractContextManager[Trial]] = (
            partial(function, self.argument) if self.argument else function
        )
        return trial()

    def dice(self, seed: int) -> random.Random:
        """The random numbers of one trial."""
        return random.Random(f"{self.name} {seed}")
