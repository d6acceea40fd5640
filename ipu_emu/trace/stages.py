"""StageTimes: how long each stage of a pipeline and each IPU works, and how well they are balanced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Category

__all__ = ["StageTimes", "stage_times"]

_WORK = (Category.COMPUTE.value, Category.UPDATE.value, Category.STREAMING_MEMORY.value)


@dataclass(frozen=True)
class StageTimes:
    """Seconds of work by stage and by IPU, of all replicas and instances together; waiting is not work."""

    stages: Mapping[int, float]
    ipus: Mapping[int, float]

    @property
    def slowest(self) -> int:
        """The IPU that works longest."""
        return max(self.ipus, key=lambda ipu: self.ipus[ipu])

    @property
    def imbalance(self) -> float:
        """The work of the busiest IPU over that of the average one: 1 if all are busy for the same time."""
        return self.ipus[self.slowest] / (sum(self.ipus.values()) / len(self.ipus)) if self.ipus else 1.0


def stage_times(run: Run) -> StageTimes | None:
    """The times of a pipeline's stages; None if the run has no pipeline."""
    stages: dict[int, float] = {}
    ipus: dict[int, float] = {}
    for process in run.instances:
        _add(process, stages, ipus)
    return StageTimes(dict(sorted(stages.items())), dict(sorted(ipus.items()))) if stages else None


def _add(process: Process, stages: dict[int, float], ipus: dict[int, float]) -> None:
    names, tracks, spans = process.trace.names, process.trace.tracks, process.spans
    keys, places = np.unique(spans["name"].astype(np.int64) << 16 | spans["track"], return_inverse=True)
    seconds = np.bincount(places, (spans["end"] - spans["begin"]) / 1e9, len(keys))
    for key, total in zip(keys.tolist(), seconds, strict=True):
        name, place = names[key >> 16], tracks[key & 0xFFFF]
        if "stage" in name.args and "ipu" in place.args and name.category in _WORK:
            stage, ipu = int(name.args["stage"]), int(place.args["ipu"])
            stages[stage] = stages.get(stage, 0.0) + float(total)
            ipus[ipu] = ipus.get(ipu, 0.0) + float(total)
