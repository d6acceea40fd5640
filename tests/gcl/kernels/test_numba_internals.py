"""Numba internals: undocumented names of numba are used in one file only, which reports missing ones."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from gcl.kernels.numba_internals import KernelCache, address_of
from tests.helpers.mpi_jobs import PROGRAMS, ROOT, run_alone

#: Attributes with a leading underscore, and private modules of numba.
INTERNAL = re.compile(r"numba\.core|\b(?:numba|compiled|dispatcher)\._|\._cache\b|\._nrt\b|\"_nrt\"")


def test_a_numba_without_one_of_them_is_refused_by_name_when_gcl_is_imported(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/kernels/numba_without_internals.py"
    assert run_alone(program, tmp_path).stdout == (
        f"numba {numba.__version__} has no numba.core.cgutils.for_range, which gcl's kernels need; "
        "install numba 0.61 to 0.68\n"
    )


def test_a_kernel_whose_cache_is_built_differently_is_refused() -> None:
    with pytest.raises(ImportError, match=r"SimpleNamespace\._cache_file"):
        KernelCache(SimpleNamespace(_cache=SimpleNamespace()))
    kernel = SimpleNamespace(overloads={(): SimpleNamespace()})
    with pytest.raises(ImportError, match=r"has no SimpleNamespace\.fndesc"):
        address_of(kernel, ())


def test_no_other_file_uses_them() -> None:
    files = {
        str(path.relative_to(ROOT))
        for package in ("gcl", "ipu_emu")
        for path in (ROOT / package).rglob("*.py")
        if INTERNAL.search(path.read_text())
    }
    assert files == {"gcl/kernels/numba_internals.py"}
