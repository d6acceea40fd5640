"""Breakable: a path that, once a collective failed, or it was closed, says so at every later call."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from functools import cache

from gcl.core.prepared_call import PreparedCall
from gcl.errors import GclError

__all__ = ["Breakable"]


#: All paths of this process: a fork copies every one of them.
_ALL: weakref.WeakSet[Breakable] = weakref.WeakSet()


class Breakable(ABC):
    """Base of paths: the first fault is kept, and the other ranks are told that this one takes part no more."""

    prepared: dict[tuple[object, ...], PreparedCall]
    _fault: GclError | None = None
    _is_copy = False  # made by a fork: not a rank, for which it must not speak

    def __new__(cls, *_: object, **__: object) -> Breakable:
        made = super().__new__(cls)
        _watch_forks()
        _ALL.add(made)
        return made

    def check(self) -> None:
        """Raise what broke this path, if anything did."""
        if self._fault is not None:
            raise self._fault

    def fail(self, error: BaseException) -> None:
        """Raise the same at every later call (or say that it was interrupted), and tell ranks that still wait."""
        interrupted = GclError("an earlier collective was interrupted, so the ranks are out of step; connect again")
        self._fault = self._fault or (error if isinstance(error, GclError) else interrupted)
        if not self._is_copy:
            self._depart(error)

    def close(self) -> None:
        """Leave: ranks that still wait for this one are told."""
        self._fault = self._fault or GclError("the communicator is closed; connect again")
        if not self._is_copy:
            self._depart(None)

    @abstractmethod
    def _depart(self, error: BaseException | None) -> None:
        """Tell the others; ``error`` is why, None at an orderly end. Called again at every end."""


@cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_disown)


def _disown() -> None:
    for path in list(_ALL):
        path.prepared.clear()  # a prepared call does not look for faults
        path._is_copy = True
        path._fault = path._fault or GclError(
            "this process was forked from a rank, whose place it cannot take; connect in the process that runs "
            "collectives"
        )
