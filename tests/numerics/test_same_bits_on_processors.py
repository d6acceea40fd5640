"""Same bits: a case of every op computes the same bits whatever instructions its kernels, numpy and BLAS use.

The cases are the first of each op, and wide ones, whose arrays fill vectors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def results(**environment: str) -> dict[str, str]:
    """The digest of the results of each case, by a process with these variables."""
    command = [sys.executable, "-m", "tests.numerics.op_results"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return {name: digest for digest, name in lines if len(digest) == 16}


def narrow() -> dict[str, str]:
    """The variables for kernels of 8 lanes, numba's too, numpy without newer instructions, and BLAS for AVX2."""
    features = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    disabled = {"NPY_DISABLE_CPU_FEATURES": " ".join(features)} if features else {}
    numba = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    return {"IPU_EMU_PROCESSOR": "x86-64-v3", "OPENBLAS_CORETYPE": "Haswell", **numba, **disabled}


@pytest.mark.timeout(900)
def test_the_first_case_of_each_op_and_wide_ones_have_the_same_bits_with_narrow_vectors() -> None:
    with ThreadPoolExecutor(2) as threads:
        here, there = threads.map(lambda variables: results(**variables), ({}, narrow()))
    assert len(here) > 250
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
