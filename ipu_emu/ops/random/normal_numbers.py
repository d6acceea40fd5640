"""Normal numbers of a numpy generator, by the functions of kernels: numpy's own depend on libm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.core.array_functions import ArrayFunction
from ipu_emu.ops.core.formulas import Formula, Term


def _box_muller(u: Term, v: Term) -> Term:
    return ((-u + 1.0).of("log") * -2.0).of("sqrt") * v.of("cos_of_turns")


def normal_numbers(random: np.random.Generator, shape: Sequence[int]) -> NDArray[np.float32]:
    """float32 numbers of the standard normal distribution, from two uniform numbers of 24 bits each."""
    u, v = (random.random(tuple(shape), np.float32) for _ in range(2))
    numbers: NDArray[Any] = ArrayFunction(Formula(_box_muller))(u, v, out=u)
    return numbers
