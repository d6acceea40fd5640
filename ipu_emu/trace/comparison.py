"""Comparison: two runs category by category, and what their difference means for scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcl.drawing.units import counted
from ipu_emu.trace.findings import RunAnalysis
from ipu_emu.trace.program_profiles import read_profiles
from ipu_emu.trace.separate_programs import notes_on

#: The smallest fraction of a step, in either run, of a category that sentences mention.
WORTH = 0.02


@dataclass(frozen=True)
class Comparison:
    """Seconds of a step by category, as means over the instances of each run.

    ``work``: the FLOPs of a replica in a step of the second run over those in the first, 1 if unknown.
    """

    before: dict[str, float]
    after: dict[str, float]
    replicas: tuple[int, int]
    notes: Sequence[str] = ()
    work: float = 1.0

    @property
    def step_seconds(self) -> tuple[float, float]:
        """Seconds of a step in each run."""
        return sum(self.before.values()), sum(self.after.values())

    @property
    def serial_fraction(self) -> float | None:
        """The fraction of a step that more replicas do not speed up (Karp and Flatt); None for equally many replicas.

        With the speedup of n times the replicas it is (1 / speedup - 1 / n) / (1 - 1 / n).
        """
        first, second = self.step_seconds
        if self._times <= 1 or not first or not second:
            return None
        return (1 / self._speedup - 1 / self._times) / (1 - 1 / self._times)

    @property
    def _times(self) -> float:
        return self.replicas[1] / self.replicas[0]

    @property
    def _speedup(self) -> float:
        """The throughput of all replicas in the second run over that in the first."""
        first, second = self.step_seconds
        return self._times * self.work * first / second

    def sentences(self) -> Sequence[str]:
        """Describe the changes, largest first."""
        first, second = self.step_seconds
        if not first or not second:
            return ["One of the runs has no steps"]
        said = [
            f"A step takes {second * 1e3:.3f} ms instead of {first * 1e3:.3f} ms ({second / first:.2f} times as long)"
        ]
        names = sorted({*self.before, *self.after}, key=lambda name: -abs(self._change(name)))
        for name in names:
            old, new = self.before.get(name, 0.0), self.after.get(name, 0.0)
            if max(old / first, new / second) >= WORTH:
                share = f" ({new / old:.2f} times as long)" if old and new else ""
                said.append(f"{name} takes {new * 1e3:.3f} ms instead of {old * 1e3:.3f} ms{share}")
        if self.serial_fraction is not None:
            said.append(self._scaling(self.serial_fraction))
        return said

    def _scaling(self, serial: float) -> str:
        step = "" if abs(self.work - 1) < 0.005 else f", each with {self.work:.2f} times the work in a step,"
        law = (
            f"by Amdahl's law {serial:.1%} of the work is serial"
            if serial <= 1
            else f"{counted(self.replicas[0], 'replica')} alone {'is' if self.replicas[0] == 1 else 'are'} faster: "
            "additional replicas cost more time than they save"
        )
        return (
            f"With {self._times:g} times the replicas{step} the throughput is {self._speedup:.2f} times as high "
            f"(efficiency {self._speedup / self._times:.0%}); {law}"
        )

    def _change(self, name: str) -> float:
        return self.after.get(name, 0.0) - self.before.get(name, 0.0)

    def data(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "step_seconds": list(self.step_seconds),
            "replicas": list(self.replicas),
            "step_seconds_by_category": {
                name: [self.before.get(name, 0.0), self.after.get(name, 0.0)]
                for name in sorted({*self.before, *self.after})
            },
            "work_of_a_replica": self.work,
            "serial_fraction": self.serial_fraction,
            "sentences": list(self.sentences()),
            "notes": list(self.notes),
        }


def compare(before: RunAnalysis, after: RunAnalysis) -> Comparison:
    """Compare two runs."""
    notes = [note for analysis in (before, after) for note in notes_on(analysis.run)]
    replicas = _replicas(before), _replicas(after)
    first, second = _work(before), _work(after)
    return Comparison(_step(before), _step(after), replicas, notes, second / first if first and second else 1.0)


def _step(analysis: RunAnalysis) -> dict[str, float]:
    """Seconds of a step by category, the mean over instances."""
    uses = [use for use in analysis.uses if use.steps]
    names = {name for use in uses for name in use.stepping}
    return {name: float(np.mean([use.stepping.get(name, 0.0) / use.steps for use in uses])) for name in names}


def _replicas(analysis: RunAnalysis) -> int:
    environments = [use.process.trace.process.get("environment", {}) for use in analysis.uses]
    return max((int(environment.get("POPDIST_NUM_TOTAL_REPLICAS", 1)) for environment in environments), default=1)


def _work(analysis: RunAnalysis) -> float:
    """FLOPs of a replica in a step of the largest program; 0 if there is no profile."""
    programs = read_profiles(analysis.run.folder, analysis.run.profiles).programs
    flops = (sum(op["flops"] * op["times_per_step"] for op in program["instructions"]) for program in programs)
    return float(max(flops, default=0.0))
