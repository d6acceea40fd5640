"""Program: something that trains or runs a model, and the digests of what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from ipu_emu.hostio import digest

__all__ = ["Program", "digests"]


@dataclass(frozen=True)
class Program:
    """``run`` returns digests by what they are of: losses, results, weights.

    ``needs``: packages beyond those of ipu_emu. ``quick``: part of the test in the gate. A program that is ``spread``
    trains four replicas, those of the job if there is one.
    """

    run: Callable[[], Mapping[str, str]]
    needs: tuple[str, ...] = ()
    quick: bool = False
    spread: bool = False

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def digests(**values: Any) -> dict[str, str]:
    """The digests of arrays, lists of numbers, and models; numbers must be finite, or bits would say little."""
    values_by_name = {}
    for name, value in values.items():
        if isinstance(value, list | np.ndarray):
            value = {"": np.asarray(value)}
            assert np.isfinite(value[""].astype(np.float64)).all(), f"{name}: {value['']}"
        values_by_name[name] = digest(value)
    return values_by_name
