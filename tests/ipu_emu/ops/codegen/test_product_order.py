"""The order of the sums of a product, and its bits on several processors."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm

from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace

fmaf = ctypes.CDLL("libm.so.6").fmaf
fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3


def product(a: Any, b: Any, y: Any, bias: Any = None) -> Any:
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = int(np.prod(y.shape[:-2]))
    sizes = gemm_workspace(m, k, n, batch, half=y.dtype == np.float16)
    for call in gemm(a, b, y, [np.full(size, np.nan, np.float32) for size in sizes], bias):
        call()
    return y


def ascending(x: Any, w: Any, start: float = 0.0) -> float:
    for factor, value in zip(w, x, strict=True):
        start = fmaf(factor, value, start)
    return start


def in_lanes(x: Any, w: Any) -> float:
    """16 partial sums, added up in halves; then the numbers behind the last 16."""
    end = len(x) // 16 * 16
    lanes = np.array([ascending(x[lane:end:16], w[lane:end:16]) for lane in range(16)], np.float32)
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return ascending(x[end:], w[end:], float(lanes[0]))


def stored(random: Any, shape: tuple[int, ...], by_columns: bool, dtype: Any = np.float32) -> Any:
    array = random.standard_normal(shape, np.float32).astype(dtype)
    return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2) if by_columns else array


@pytest.mark.parametrize("size", [(1, 5, 40), (3, 33, 10), (30, 20, 7), (90, 9, 70), (2, 12, 1)], ids=str)
@pytest.mark.parametrize("by_columns", [False, True], ids=["rows", "columns"])
def test_depths_are_added_in_their_order(size: tuple[int, int, int], by_columns: bool) -> None:
    m, k, n = size
    random = np.random.default_rng(m)
    a, b = stored(random, (m, k), by_columns), stored(random, (k, n), False)
    bias = random.standard_normal(n, np.float32)
    y = product(a, b, np.empty((m, n), np.float32), bias)
    for i, j in {(0, 0), (m - 1, n - 1), (m // 2, n // 2)}:
        assert y[i, j] == np.float32(ascending(b[:, j], a[i], float(bias[j]))), (i, j)


@pytest.mark.parametrize("size", [(1, 50, 40), (3, 33, 10), (70, 40, 7), (23, 64, 70), (5, 100, 1)], ids=str)
def test_few_rows_and_columns_that_lie_together_are_multiplied_in_lanes(size: tuple[int, int, int]) -> None:
    m, k, n = size
    random = np.random.default_rng(m)
    a, b = stored(random, (m, k), False), stored(random, (k, n), True)
    y = product(a, b, np.empty((m, n), np.float32))
    for i, j in {(0, 0), (m - 1, n - 1), (m // 2, n // 2)}:
        assert y[i, j] == np.float32(in_lanes(b[:, j], a[i])), (i, j)


def digest(random: Any, lead: tuple[int, ...], size: Any, by_columns: Any, dtype: Any = np.float32) -> str:
    """The digest of a product; ``by_columns``: the storage order of a, b and y."""
    m, k, n = size
    a, b, y = (
        stored(random, (*lead, *shape), bool(order), dtype)
        for shape, order in zip([(m, k), (k, n), (m, n)], by_columns, strict=True)
    )
    return f"{lead} {size} {by_columns} {y.dtype} {sha256(product(a, b, y).tobytes()).hexdigest()}"


def digests() -> list[str]:
    """The digests of products of many shapes, storage orders and types."""
    random = np.random.default_rng(0)
    sizes, results = (1, 2, 7, 16, 17, 31, 40, 65, 100), []
    for _ in range(150):
        lead = tuple(int(n) for n in random.integers(1, 4, random.integers(0, 3)))
        size, orders = [int(random.choice(sizes)) for _ in range(3)], random.integers(0, 2, 3)
        dtype = [np.float32, np.float32, np.float16, np.float64][random.integers(4)]
        results.append(digest(random, lead, size, orders, dtype))
    for size in ([300, 700, 900], [900, 700, 300]):  # several groups of columns, and of rows
        results += [digest(random, (), size, (0, b, 0)) for b in (0, 1)]
    return results


@pytest.mark.parametrize("processor", ["x86-64-v3", "skylake-avx512", "znver4"])
def test_products_have_the_same_bits_on_every_processor(processor: str) -> None:
    if processor != "x86-64-v3" and not llvm.get_host_cpu_features().get("avx512vnni"):
        pytest.skip("this processor has no AVX-512")
    code = "import test_product_order as tests; print(*tests.digests(), sep='\\n')"
    environment = os.environ | {"IPU_EMU_PROCESSOR": processor, "OPENBLAS_CORETYPE": "Haswell"}
    environment["PYTHONPATH"] = os.path.dirname(__file__)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.stdout.splitlines() == digests(), run.stderr
