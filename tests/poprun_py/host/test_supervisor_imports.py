"""Supervisor: it imports little, because every instance of a job starts one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgpack

import poprun_py
from popdist_py import environment
from poprun_py.wire import variables

#: Modules that take long to import and that a supervisor does not need.
SLOW = {"asyncio", "dataclasses", "inspect", "json", "logging", "numpy", "popdist_py", "subprocess", "threading"}


def test_a_supervisor_imports_nothing_slow() -> None:
    folders = [str(Path(module.__file__ or "").parents[1]) for module in (poprun_py, msgpack)]
    program = f"import sys; sys.path += {folders!r}; import poprun_py.host.supervisor; print(*sys.modules)"
    command = [sys.executable, "-S", "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ, timeout=60)
    assert "poprun_py.host.supervisor" in done.stdout.split()
    assert not SLOW & set(done.stdout.split())


def test_names_that_popdist_reads() -> None:
    for name in ("EXECUTABLE_CACHE_PATH", "REPORT_SOCKET"):
        assert getattr(variables, name) == getattr(environment, name)
