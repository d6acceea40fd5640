"""BoundPreload: a thread loads the tensors of the next phase from Streaming Memory while this phase computes.

    caller    phase 0 ........  phase 1 ...  wait  phase 2 ...
    thread    load 1            load 2 .........

Phases use different memory, so results do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_emu.engine.bound_parts import PartList, StepContext
from ipu_emu.engine.calls.wall_time import WallCategory
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.ops import Call

#: The number of bytes below which starting loads in a thread costs more than it saves.
WORTH_PRELOADING = 1 << 20


@dataclass(frozen=True)
class BoundPreload:
    """``thread`` runs ``loads`` during ``body``; without a thread the loads run first."""

    loads: Call
    body: PartList
    thread: Workers | None

    def run(self, context: StepContext) -> None:
        if self.thread is None:
            context.wall.timed(WallCategory.COMPUTE, self.loads)
            self.body.run(context)
            return
        self.thread.start([self.loads])
        try:
            self.body.run(context)
        finally:
            context.wall.timed(WallCategory.COMPUTE, self.thread.wait)

    def calls(self) -> Sequence[tuple[WallCategory, Call]]:
        return self.body.calls()

    def close(self) -> None:
        self.body.close()
