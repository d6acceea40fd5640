"""Kill summary: the results of many kills in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

__all__ = ["summarised"]


class Death(Protocol):
    """One kill: the victim's role, the seconds until all processes were gone, and the faults."""

    @property
    def role(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def faults(self) -> tuple[str, ...]: ...


def summarised(kills: Sequence[Death], seed: int) -> int:
    """Print the summary; return the number of kills with faults."""
    bad = sum(bool(kill.faults) for kill in kills)
    seconds = sorted(kill.seconds for kill in kills)
    print(
        f"{len(kills)} kills with seed {seed}: {bad} not as promised; gone after "
        f"{seconds[len(seconds) // 2]:.2f} s (median), {seconds[-1]:.2f} s (longest); "
        f"victims {dict(Counter(kill.role for kill in kills))}"
    )
    return bad
