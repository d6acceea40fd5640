"""Gradient accumulation: how the gradients of mini-batches are combined."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(Enum):
    """How the gradients of mini-batches are combined."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, value: Any) -> GradientAccumulationReductionMethod:
        """Return a member given as such or by name in any letter case; raise ValueError for others."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"Cannot parse {value!r} as one of {', '.join(cls.__members__)}; give a member of "
            "GradientAccumulationReductionMethod or one of these names"
        )
