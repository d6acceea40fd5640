"""StageBalance: how long each stage of a pipeline and each IPU works, and how well they are balanced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Category

_WORK = (Category.COMPUTE.value, Category.UPDATE.value, Category.STREAMING_MEMORY.value)


@dataclass(frozen=True)
class StageBalance:
    """Seconds of work by stage and by IPU, summed over replicas and instances; waiting is not work."""

    stages: Mapping[int, float]
    ipus: Mapping[int, float]
    #: Seconds in which steps run, summed over replicas: the most that an IPU can work.
    available: Mapping[int, float]

    @property
    def slowest(self) -> int:
        """The IPU that works longest."""
        return max(self.ipus, key=lambda ipu: self.ipus[ipu])

    @property
    def busy(self) -> Mapping[int, float]:
        """The fraction of time in which each IPU works."""
        return {
            ipu: min(seconds / (self.available.get(ipu) or seconds or 1), 1.0) for ipu, seconds in self.ipus.items()
        }

    @property
    def efficiency(self) -> float:
        """The fraction of time in which the IPUs work; the rest is bubble and waiting."""
        available = sum(self.available.values())
        return min(sum(self.ipus.values()) / available, 1.0) if available else 0.0

    @property
    def imbalance(self) -> float:
        """The work of the busiest IPU over that of the average one: 1 if all are busy for the same time."""
        return self.ipus[self.slowest] / (sum(self.ipus.values()) / len(self.ipus)) if self.ipus else 1.0


def stage_times(run: Run) -> StageBalance | None:
    """The times of a pipeline's stages; None if the run has no pipeline."""
    stages: dict[int, float] = {}
    ipus: dict[int, float] = {}
    available: dict[int, float] = {}
    for process in run.instances:
        _add(process, stages, ipus, available)
    tables = (dict(sorted(table.items())) for table in (stages, ipus, available))
    return StageBalance(*tables) if stages else None


def _add(process: Process, stages: dict[int, float], ipus: dict[int, float], available: dict[int, float]) -> None:
    start, stop = process.window
    names, tracks, spans = process.trace.names, process.trace.tracks, process.spans
    keys, places = np.unique(spans["name"].astype(np.int64) << 16 | spans["track"], return_inverse=True)
    seconds = np.bincount(places, (spans["end"] - spans["begin"]) / 1e9, len(keys))
    lanes = set()
    for key, total in zip(keys.tolist(), seconds, strict=True):
        name, place = names[key >> 16], tracks[key & 0xFFFF]
        if "stage" in name.args and "ipu" in place.args and name.category in _WORK:
            stage, ipu = int(name.args["stage"]), int(place.args["ipu"])
            stages[stage] = stages.get(stage, 0.0) + float(total)
            ipus[ipu] = ipus.get(ipu, 0.0) + float(total)
            lanes.add((key & 0xFFFF, ipu))
    for _, ipu in lanes:
        available[ipu] = available.get(ipu, 0.0) + (stop - start) / 1e9
