"""Functions of kernels: their distance from the exact value, special values, and the same bits on every processor."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from ipu_emu.ops.core.array_functions import function

PROGRAM = Path(__file__).with_name("digests_of_functions.py")
SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e-45, -1e-45, 1e-40, 3e38,
    -3e38, 88.7, -88.7, 1e22, 2.0**30, 2.0**31, 16777217.0,
]  # fmt: skip

#: Function of numpy; bound in ulp for float64, as ops.codegen.functions.float64_math states it.
EXACT: dict[str, tuple[Any, float]] = {
    "acos": (np.arccos, 2.5),
    "acosh": (np.arccosh, 2.0),
    "asin": (np.arcsin, 2.5),
    "asinh": (np.arcsinh, 2.0),
    "atan": (np.arctan, 2.0),
    "atan2": (np.arctan2, 2.5),
    "atanh": (np.arctanh, 2.0),
    "cos": (np.cos, 1.0),
    "cosh": (np.cosh, 1.5),
    "exp": (np.exp, 1.0),
    "expm1": (np.expm1, 2.0),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 1.0),
    "pow": (np.power, 1.0),
    "sin": (np.sin, 1.0),
    "sinh": (np.sinh, 2.5),
    "tan": (np.tan, 2.0),
    "tanh": (np.tanh, 2.5),
}
#: Functions whose float32 form is not the float64 one; its bounds are tested with the kernels.
OWN = ("exp", "log", "tanh")


def numbers(dtype: Any, seed: int) -> np.ndarray:
    """Random numbers of all sizes and near 0, and special ones."""
    random, width = np.random.default_rng(seed), 8 * np.dtype(dtype).itemsize
    bits = random.integers(0, 1 << width, 30_000, np.uint64).astype(f"u{width // 8}").view(dtype)
    near = [random.uniform(-size, size, 20_000) for size in (1.5, 10, 120)]
    return np.concatenate([bits, *near, np.array(SPECIAL)]).astype(dtype)


def operands(name: str, dtype: Any) -> list[np.ndarray]:
    x = numbers(dtype, 0)
    return [x, np.random.default_rng(2).permutation(numbers(dtype, 1))] if name in ("pow", "atan2") else [x]


def distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In ulp of ``got``, of elements that are finite; others, and the signs of zeros, must be equal."""
    rounded = want.astype(got.dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    zero = (rounded == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
    return np.abs(got[finite].astype(want.dtype) - want[finite]) / np.spacing(np.abs(rounded[finite]))


@pytest.mark.parametrize("name", [name for name in EXACT if name not in OWN])
def test_float32_functions_are_rounded_once(name: str) -> None:
    inputs = operands(name, np.float32)
    with np.errstate(all="ignore"):
        want = EXACT[name][0](*(x.astype(np.float64) for x in inputs))
        assert distance(function(name)(*inputs), want).max() <= 0.500001


@pytest.mark.parametrize("name", EXACT)
def test_float64_functions_are_as_accurate_as_stated(name: str) -> None:
    exact, bound = EXACT[name]
    inputs = operands(name, np.float64)
    if name in ("sin", "cos", "tan"):  # the reduction of np.longdouble is not exact for larger angles
        inputs = [x[~(np.abs(x) > 1e4) | np.isinf(x)] for x in inputs]
    with np.errstate(all="ignore"):
        want = exact(*(x.astype(np.longdouble) for x in inputs))
        assert distance(function(name)(*inputs), want).max() <= bound


def test_float64_error_function_and_activations_are_as_accurate_as_their_references() -> None:
    x = numbers(np.float64, 0)
    x = np.concatenate([x[np.abs(x) < 30], np.linspace(-8, 8, 20_001)])
    erf, share = (
        np.array([f(v) for v in x.tolist()]) for f in (math.erf, lambda v: math.erfc(-v / math.sqrt(2)) / 2)
    )
    np.testing.assert_allclose(function("erf")(x), erf, rtol=6e-16)
    np.testing.assert_allclose(function("gelu_erf")(x), x * share, rtol=2e-13, atol=1e-300)  # of -v / sqrt(2)
    np.testing.assert_allclose(function("softplus")(x), np.logaddexp(x, 0), rtol=1e-15)
    np.testing.assert_allclose(function("sigmoid")(x), np.exp(-np.logaddexp(-x, 0)), rtol=2e-14)


def test_angles_of_any_size_are_reduced_exactly() -> None:
    """The worst case of float64 (Muller, Elementary Functions), and 10^22."""
    x = np.array([6381956970095103 * 2.0**797, 1e22])
    np.testing.assert_allclose(function("cos")(x), [-4.68716592425462761112e-19, 0.5232147853951389], rtol=3e-16)
    np.testing.assert_allclose(np.abs(function("sin")(x)), [1.0, 0.8522008497671888], rtol=3e-16)
    large = np.array([1e22, 2.0**31, 3.4e38], np.float32)
    np.testing.assert_array_equal(function("sin")(large), np.sin(large.astype(np.float64)).astype(np.float32))


def test_powers_that_are_numbers_of_the_type_are_exact() -> None:
    base, exponent = np.meshgrid(np.arange(-12.0, 13.0), np.arange(0.0, 14.0))
    np.testing.assert_array_equal(function("pow")(base, exponent), base**exponent)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (4, 6, 7)])
def test_arrays_of_any_shape_and_order_have_the_same_bits(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random(shape, np.float32) + np.float32(0.1)
    want = function("log")(x)
    for turned in (x.T, np.stack([x, x], -1)[..., 0].T):
        out = np.zeros(shape[::-1], np.float32)
        assert function("log")(turned, out=out) is out or not shape
        np.testing.assert_array_equal(out, want.T)
    half, double = (function("log")(x.astype(kind)) for kind in (np.float16, np.float64))
    assert (half.dtype, double.dtype) == (np.float16, np.float64)
    np.testing.assert_array_equal(
        function("pow")(x, x.reshape(-1)[:1]), function("pow")(x, np.full_like(x, x.flat[0]))
    )


def test_functions_have_the_same_bits_on_processors_with_and_without_avx512() -> None:
    if not llvm.get_host_cpu_features().get("avx512vl"):
        pytest.skip("this processor has no AVX-512, so it cannot run kernels compiled for it")
    jobs = []
    for processor in ("x86-64-v3", "skylake-avx512"):
        environment = os.environ | {"IPU_EMU_PROCESSOR": processor, "IPU_EMU_KERNEL_CACHE": ""}
        jobs.append(subprocess.Popen([sys.executable, PROGRAM], env=environment, stdout=subprocess.PIPE, text=True))
    narrow, wide = (job.communicate(timeout=200)[0] for job in jobs)
    assert len(narrow.splitlines()) > 40
    assert narrow == wide
