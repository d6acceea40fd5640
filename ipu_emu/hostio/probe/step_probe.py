"""StepProbe: what ``ipu-emu hostio`` measures of a session whose program hands over step data itself.

    real                       run | the program prepares | run | the program prepares | ...
    generated and synthetic    run run run ...              within the first call, without the program

When enough steps are timed it writes its report and ends the program.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from time import perf_counter

from ipu_emu.hostio.data.data_modes import DataMode
from ipu_emu.hostio.probe.probe import Probe

__all__ = ["StepProbe"]


class StepProbe:
    """Measures the steps of one session, of so many samples and bytes each."""

    workers = 0
    slot_nbytes = 0

    def __init__(self, probe: Probe, mode: DataMode, samples: int, nbytes: int) -> None:
        self.mode, self.samples, self.nbytes = mode, samples, nbytes
        self.position = 0
        self.waited = 0.0  # seconds between runs, and those in which a run waits for callbacks
        self._probe, self._left = probe, 0.0
        atexit.register(self.close)

    @classmethod
    def of_environment(cls, mode: DataMode, samples: int, nbytes: int) -> StepProbe | None:
        """None if nobody asks, or a feed measures."""
        probe = Probe.of(os.environ)
        return None if probe is None or probe.is_claimed else cls(probe, mode, samples, nbytes)

    def run(self, step: Callable[[], float]) -> None:
        """Make a step, which returns for how many seconds it has waited for data; raise SystemExit after the last."""
        self.waited += perf_counter() - self._left if self._left else 0.0
        again = True
        while again:
            if self._probe.enough(self):
                self.close()
                raise SystemExit(0)
            self.waited += step()
            self.position += 1
            again = self.mode is not DataMode.REAL
        self._left = perf_counter()

    def close(self) -> None:
        """Write the report, once."""
        self._probe.write(self)
