"""Inventory of environment variables: a test gives each that the emulator, gcl and popdist_py read.

The rows are the names among the texts of the sources; those of the launcher are in its own inventory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ipu_emu.hardware.ipu_locks import claims_folder
from tests.helpers.inventory_page import assert_counts
from tests.helpers.mpi_jobs import ROOT

PACKAGES = ("ipu_emu", "gcl", "popdist_py")
_NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]")
#: Beginnings of the names of variables.
_OWNERS = ("FI", "GCL", "GLOO", "IPU_EMU", "LOCAL_WORLD", "NO_COLOR", "NUMBA", "OMPI", "PMI", "POPART", "POPDIST",
           "POPLAR", "POPTORCH", "POPXL", "PVTI", "TF", "UCX", "XDG")  # fmt: skip


#: Variables that programs of the packages set for each other, and for MPI.
INNER = {"IPU_EMU_TRACE_FOLDER", "UCX_DEBUG_SIGNO"}


@cache
def variables() -> dict[str, set[str]]:
    """The names of variables in the sources, with those of the constants that have them."""
    names: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text()
            tree = ast.parse(text if any(owner in text for owner in _OWNERS) else "")
            for node in ast.walk(tree):
                for name, constant in named(node):
                    names.setdefault(name, set()).update(constant)
    return names


def named(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and is_variable(node.value.value):
        yield str(node.value.value), {ast.unparse(target) for target in node.targets}
    elif isinstance(node, ast.Constant) and is_variable(node.value):
        yield str(node.value), set()


def is_variable(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and value.startswith(_OWNERS)


def test_every_variable_is_given_by_a_test() -> None:
    words = {word for file in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", file.read_text())}
    assert len(variables()) > 40
    lacking = {name for name, constants in variables().items() if not words & {name, *constants}}
    assert lacking - INNER == set()
    assert variables().keys() >= INNER
    assert_counts("environment variables of `ipu_emu`, `gcl` and `popdist_py`", len(variables().keys() - INNER), 0, 0)


def test_the_folder_of_claims() -> None:
    assert claims_folder({"IPU_EMU_CLAIMS": "/a", "XDG_RUNTIME_DIR": "/b"}) == "/a"
    assert claims_folder({"XDG_RUNTIME_DIR": "/b"}) == "/b"


@pytest.mark.torch
def test_variables_of_poptorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    poptorch = pytest.importorskip("ipu_emu.poptorch")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 3}')
    options = poptorch.Options()
    assert options.device_iterations == 3
    assert str(tmp_path) in str(options.outputMode(poptorch.OutputMode.All).toDict())
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"):
        monkeypatch.setenv(name, "0")
        assert poptorch.ipuHardwareIsAvailable()
        monkeypatch.setenv(name, "1")
        assert not poptorch.ipuHardwareIsAvailable()
        monkeypatch.delenv(name)


def test_a_log_level_has_no_effect() -> None:
    pytest.importorskip("torch")
    from ipu_emu import poptorch

    with pytest.warns(UserWarning, match="poptorch setLogLevel has no effect"):
        poptorch.setLogLevel("ERR")
