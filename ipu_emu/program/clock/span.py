"""Span: work of one IPU in modelled time: an instruction, a task of a pipeline, or iterations of a loop."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.program.clock.pricing import CostCategory
from ipu_emu.program.schedules import TaskType

__all__ = ["Span"]


@dataclass(frozen=True)
class Span:
    """``seconds`` of work of one IPU from ``start`` on."""

    ipu: int
    start: float
    seconds: float
    name: str
    category: CostCategory | TaskType
