"""Sampling: runs a sample of a product of parameters; ``pytest --full`` runs the whole product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["sampled_product"]


def sampled_product(axes: Mapping[str, Sequence[Any]], *, strength: int = 2) -> list[Any]:
    """Parameters of the whole product of ``axes``; those outside the sample have the mark ``full``.

    The sample has every combination of values of any ``strength`` axes at least once, found greedily.
    """
    cases = list(product(*(range(len(values)) for values in axes.values())))
    missing = {case: set(combinations(enumerate(case), strength)) for case in cases}
    chosen = set[tuple[int, ...]]()
    while most := max(map(len, missing.values()), default=0):
        best = max((case for case in missing if len(missing[case]) == most), key=lambda case: -_spread(case, chosen))
        chosen.add(best)
        covered = set(missing[best])
        for combined in missing.values():
            combined -= covered
    return [_parameter(axes, case, chosen) for case in cases]


def _spread(case: tuple[int, ...], chosen: set[tuple[int, ...]]) -> int:
    """The number of values that a case shares with earlier chosen cases."""
    return sum(a == b for other in chosen for a, b in zip(case, other, strict=True))


def _parameter(axes: Mapping[str, Sequence[Any]], case: tuple[int, ...], chosen: set[tuple[int, ...]]) -> Any:
    values = [values[index] for values, index in zip(axes.values(), case, strict=True)]
    label = " ".join(f"{name}={_named(value)}" for name, value in zip(axes, values, strict=True))
    return pytest.param(*values, id=label, marks=() if case in chosen else pytest.mark.full)


def _named(value: Any) -> str:
    return str(getattr(value, "__name__", getattr(value, "name", value))).replace(" ", "")
