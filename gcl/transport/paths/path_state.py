"""PathState: whether a data path still works; once a collective failed, or it was closed, every call says so.

A fork copies a path, but the child is not a rank: its copy runs nothing and tells the other ranks nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from gcl.core.prepared_call import PreparedCall
from gcl.errors import GclError

__all__ = ["PathState"]


class PathState:
    """The first fault of a path, and its prepared calls, which do not look for faults and are therefore forgotten.

    ``depart``, a method of the path, tells the other ranks that this one takes part no more: with the error that is
    why, or None at an orderly end. It is called again at every end.
    """

    def __init__(
        self,
        depart: Callable[[BaseException | None], None],
        prepared: dict[tuple[object, ...], PreparedCall] | None = None,
    ) -> None:
        self.prepared: dict[tuple[object, ...], PreparedCall] = {} if prepared is None else prepared
        self.fault: GclError | None = None
        self._depart, self._is_copy = weakref.WeakMethod(depart), False  # a path goes with its last reference
        # prepared calls refer to parts of the path, and to this dict
        weakref.finalize(self, self.prepared.clear).atexit = False
        state = weakref.ref(self)

        def disown() -> None:
            found = state()
            if found is not None:
                found._disown()

        os.register_at_fork(after_in_child=disown)

    def check(self) -> None:
        """Raise what broke this path, if anything did."""
        if self.fault is not None:
            raise self.fault

    def fail(self, error: BaseException) -> None:
        """Raise the same at every later call (or say that it was interrupted), and tell ranks that still wait."""
        interrupted = GclError("an earlier collective was interrupted, so the ranks are out of step; connect again")
        self._end(error if isinstance(error, GclError) else interrupted, error)

    def close(self) -> None:
        """Leave: ranks that still wait for this one are told."""
        self._end(GclError("the communicator is closed; connect again"), None)

    def _end(self, fault: GclError, error: BaseException | None) -> None:
        self.fault = self.fault or fault
        depart = self._depart()
        if not self._is_copy and depart is not None:
            self.prepared.clear()
            depart(error)

    def _disown(self) -> None:
        self.prepared.clear()
        self._is_copy = True
        self.fault = self.fault or GclError(
            "this process was forked from a rank, whose place it cannot take; connect in the process that runs "
            "collectives"
        )
