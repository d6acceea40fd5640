"""BoundPreload: what the next phase needs comes from Streaming Memory in a thread, while the present one computes.

    caller    phase 0 ........  phase 1 ...  wait  phase 2 ...
    thread    load 1            load 2 .........

Phases work on different memory, so that nothing depends on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipu_emu.engine.calls.wall_time import Kind
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call

__all__ = ["WORTH_PRELOADING", "BoundPreload"]

#: Bytes below which handing loads to a thread costs more than it saves.
WORTH_PRELOADING = 1 << 20


@dataclass(frozen=True)
class BoundPreload:
    """``loads`` are made by ``thread`` while ``body`` runs; without one they come first."""

    loads: Call
    body: Sequence[Any]
    thread: Workers | None

    def run(self, walk: Callable[[Sequence[Any]], None], clock: Callable[[Kind, Call], None]) -> None:
        """``walk`` runs a body, ``clock`` makes a call and adds its time to a kind."""
        if self.thread is None:
            clock(Kind.COMPUTE, self.loads)
            walk(self.body)
            return
        self.thread.start([self.loads])
        try:
            walk(self.body)
        finally:
            clock(Kind.COMPUTE, self.thread.wait)
