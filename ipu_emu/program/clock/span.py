"""Span: work of one IPU in modelled time: an instruction, a task of a pipeline, or iterations of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ipu_emu.program.clock.pricing import CostCategory
from ipu_emu.program.schedules import TaskType


@dataclass(frozen=True)
class Span:
    """``seconds`` of work of one IPU from ``start`` on.

    ``about`` has the stage and the micro-batch, if it is work on one; ``parts`` are the instructions that it consists
    of, each with its start after that of the span.
    """

    ipu: int
    start: float
    seconds: float
    name: str
    category: CostCategory | TaskType
    about: Mapping[str, int] = field(default_factory=dict)
    parts: Sequence[Span] = ()
