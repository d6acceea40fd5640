"""Example runs: runs an example in the test process, as the command would, without starting an interpreter."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator

import pytest

import popdist_py
from tests.helpers.mpi_jobs import ROOT

__all__ = ["ExampleMain", "example_main"]

#: Runs an example of this file name with arguments, and returns what it printed.
ExampleMain = Callable[..., str]


@pytest.fixture
def example_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[ExampleMain]:
    folder = ROOT / "examples"
    monkeypatch.syspath_prepend(folder)

    def run(name: str, *arguments: object) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [str(folder / name), *map(str, arguments)])
        runpy.run_path(str(folder / name), run_name="__main__")
        return capsys.readouterr().out

    yield run
    if popdist_py.isBackendInitialized():
        popdist_py.finalizeBackend()
