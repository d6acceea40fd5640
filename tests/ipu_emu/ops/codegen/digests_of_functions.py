"""Print the digests of the results of every function of kernels in float64, and of some in float32."""

from __future__ import annotations

from hashlib import sha256
from inspect import signature

import numpy as np

from ipu_emu.ops.codegen.functions.float64_math import FUNCTIONS
from ipu_emu.ops.core.array_functions import function

#: Those whose float32 form is an algorithm of its own; pow and sin, which are computed in float64 and rounded.
IN_FLOAT32 = (
    *("exp", "exp_falling", "expm1_falling", "tanh", "erf", "log", "sigmoid", "softplus", "pow", "sin"),
    *("gelu_erf", "gelu_erf_slope", "gelu_tanh", "gelu_tanh_slope"),
)


def main() -> None:
    for dtype, width in ((np.float32, 4), (np.float64, 8)):
        random = np.random.default_rng(0)
        bits = random.integers(0, 1 << (8 * width), (2, 4001), np.uint64).astype(f"u{width}").view(dtype)
        x, y = np.concatenate([bits, random.uniform(-5, 5, (2, 4001)).astype(dtype)], 1)
        for name in FUNCTIONS if width == 8 else IN_FLOAT32:
            two = "y" in signature(FUNCTIONS[name]).parameters
            result = function(name)(x, y) if two else function(name)(x)
            result[np.isnan(result)] = np.nan
            print(np.dtype(dtype), name, sha256(result.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
