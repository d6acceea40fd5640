"""PlacementOptions and PipelineOptions: how the ops of a model are divided between the IPUs of a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType


class PlacementMode(Enum):
    """How the IPU of an op is determined."""

    OFF = "one IPU runs all ops"
    MANUAL = "the annotations of the model"
    AUTO = "the compiler, by work and memory"
    GIVEN = "the places of the options"
    EXECUTION_PHASES = "the execution phases of the model, which take turns on the IPUs"


@dataclass(frozen=True)
class PlacementOptions:
    """``ipus`` is the number of IPUs of one replica.

    ``ratios`` are the relative amounts of work that AUTO gives to each IPU; none given: equal amounts.
    ``phase_ipus`` is the number of IPUs that execution phases take turns on. ``places`` are the (IPU, stage) that
    GIVEN gives to each op, by its first output.
    """

    mode: PlacementMode = PlacementMode.OFF
    ipus: int = 1
    ratios: tuple[float, ...] = ()
    phase_ipus: int = 2
    places: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def assigns(self) -> bool:
        """Whether ops are assigned to IPUs."""
        return self.mode is not PlacementMode.OFF


@dataclass(frozen=True)
class PipelineOptions:
    """``schedule`` is the name of a row of ``ipu_emu.program.schedules.SCHEDULES``.

    A stage processes ``iterations`` micro-batches in a row before the next stage starts. With ``concurrent_stages`` a
    stage may have parts on several IPUs that work at the same time; with ``sharded_stages`` the ops of a stage may be
    on several IPUs and read each other's results. ``accumulates``: gradients are accumulated, even if a batch has
    only one micro-batch.
    """

    schedule: str = "popart"
    iterations: int = 1
    concurrent_stages: bool = False
    sharded_stages: bool = False
    accumulates: bool = False
