"""Operator: how the contributions of the replicas of a group become one result."""

from __future__ import annotations

from enum import StrEnum

from gcl.errors import ArgumentError

__all__ = ["CODES", "Operator", "operator"]


class Operator(StrEnum):
    """Element-wise reductions; MEAN is the sum divided by the group size."""

    ADD = "add"
    MEAN = "mean"
    MUL = "mul"
    MIN = "min"
    MAX = "max"


#: What the kernels branch on.
CODES: dict[Operator, int] = {member: code for code, member in enumerate(Operator)}


def operator(name: str) -> Operator:
    """The operator called ``name`` (any letter case); raise ArgumentError listing those there are."""
    try:
        return Operator(name.lower())
    except ValueError:
        raise ArgumentError(f"operator {name!r} was asked for; there are {', '.join(Operator)}") from None
