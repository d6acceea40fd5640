"""PathState: whether a data path still works; after a failed collective, or after ``close``, every call raises.

A fork copies a path, but the child is not a rank: its copy refuses calls and sends nothing to other ranks.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from gcl.core.prepared_call import PreparedCall
from gcl.errors import GclError, notify_supervisor


class PathState:
    """The first fault of a path, and its prepared calls, which do not check for faults and are dropped at the first.

    ``leave``, a method of the path, notifies the other ranks that this one has left: with the error that is the
    reason, or None after ``close``. It is called again at every later ``fail`` or ``close``.
    """

    def __init__(
        self,
        leave: Callable[[BaseException | None], None],
        prepared: dict[tuple[object, ...], PreparedCall] | None = None,
    ) -> None:
        self.prepared: dict[tuple[object, ...], PreparedCall] = {} if prepared is None else prepared
        self.fault: GclError | None = None
        self._leave, self._is_copy = weakref.WeakMethod(leave), False  # weak, so that the path can be collected
        # prepared calls refer to parts of the path, and to this dict
        weakref.finalize(self, self.prepared.clear).atexit = False
        state = weakref.ref(self)

        def disown() -> None:
            path_state = state()
            if path_state is not None:
                path_state._disown()

        os.register_at_fork(after_in_child=disown)

    def check(self) -> None:
        """Raise what broke this path, if anything did."""
        if self.fault is not None:
            raise self.fault

    def fail(self, error: BaseException) -> None:
        """Break the path: later calls raise ``error``, or that it was interrupted.

        Ranks that wait are notified, and before them the supervisor of this process, if a peer caused the error.
        """
        notify_supervisor(error)
        interrupted = GclError("an earlier collective was interrupted, so the ranks are out of step; connect again")
        self._end(error if isinstance(error, GclError) else interrupted, error)

    def close(self) -> None:
        """Leave, and notify ranks that still wait for this one."""
        self._end(GclError("the communicator is closed; connect again"), None)

    def _end(self, fault: GclError, error: BaseException | None) -> None:
        self.fault = self.fault or fault
        leave = self._leave()
        if not self._is_copy and leave is not None:
            self.prepared.clear()
            leave(error)

    def _disown(self) -> None:
        self.prepared.clear()
        self._is_copy = True
        self.fault = self.fault or GclError(
            "this process was forked from a rank, whose place it cannot take; connect in the process that runs "
            "collectives"
        )


class BreakablePath:
    """The end of a path, which is in the state that the path has in ``_state``."""

    _state: PathState

    def fail(self, error: BaseException) -> None:
        """Break the path with ``error``: every later call raises it, and ranks that still wait are notified."""
        self._state.fail(error)

    def close(self) -> None:
        """Leave, and notify ranks that still wait for this one; they raise PeerLost."""
        self._state.close()
