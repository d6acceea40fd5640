"""Operator: how the contributions of the replicas of a group become one result."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

from gcl.errors import ArgumentError
from popdist_py.messages.suggestion import did_you_mean


class Operator(StrEnum):
    """Element-wise reductions.

    MEAN is the sum divided by the group size (integers: towards zero), SQUARE_ADD the sum of squares; LOGICAL_AND and
    LOGICAL_OR take bool, which takes no arithmetic; LOCAL keeps a replica's own values and moves nothing.
    """

    ADD = "add"
    MEAN = "mean"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    SQUARE_ADD = "square_add"
    LOCAL = "local"

    @classmethod
    def parse(cls, name: str, dtype: np.dtype[Any] | None = None) -> Operator:
        """The operator ``name``, in any letter case; raise ArgumentError if unknown or not for ``dtype``."""
        try:
            operator = cls(name.lower())
        except (ValueError, AttributeError):
            raise ArgumentError(
                f"operator {name!r} is unknown; use {', '.join(cls)}{did_you_mean(name, cls)}"
            ) from None
        if dtype == np.bool_ and operator not in _FOR_BOOL:
            raise ArgumentError(f"operator {operator} does not take bool; use {', '.join(sorted(_FOR_BOOL))}")
        if dtype not in (None, np.bool_) and operator in _LOGICAL:
            raise ArgumentError(f"operator {operator} does not take {dtype}; it takes bool")
        return operator


_LOGICAL = {Operator.LOGICAL_AND, Operator.LOGICAL_OR}
_FOR_BOOL = {*_LOGICAL, Operator.MIN, Operator.MAX, Operator.LOCAL}
