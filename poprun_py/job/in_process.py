"""In-process run: the only instance of a job in the launcher's own process, for debuggers; no MPI, no supervisor."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from popdist_py import trace
from popdist_py.environment import TRACE_FOLDER
from poprun_py.plan.launch_plan import LaunchPlan


def run_in_process(plan: LaunchPlan) -> int:
    """Run the program with the environment of instance 0; return its exit code, unless it raises SystemExit.

    A program for this Python is run in this interpreter, so that the launcher's debugger sees it; any other program
    replaces this process.
    """
    for name in plan.unset:
        os.environ.pop(name, None)
    os.environ.update(plan.instances[0].environment)
    if os.environ.get(TRACE_FOLDER):
        trace.start(os.environ[TRACE_FOLDER])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = _runner(plan.executable, plan.program)
    if run is None:
        sys.stdout.flush()
        os.execve(plan.executable, list(plan.program), dict(os.environ))
    run()
    return 0


def _runner(executable: str, program: Sequence[str]) -> Callable[[], Any] | None:
    """Return a function that runs ``python FILE ...`` or ``python -m MODULE ...`` here, else None."""
    words = list(program[1:])
    if not os.path.samefile(executable, sys.executable) or os.path.dirname(executable) != os.path.dirname(
        sys.executable
    ):
        return None
    if words[:1] == ["-m"] and len(words) > 1:
        return lambda: _as_main(words[1:], os.getcwd(), runpy.run_module, alter_sys=True)
    if words and not words[0].startswith("-"):
        return lambda: _as_main(words, os.path.dirname(os.path.abspath(words[0])), runpy.run_path)
    return None


def _as_main(argv: list[str], folder: str, run: Callable[..., Any], **how: bool) -> None:
    sys.argv[:] = argv
    sys.path.insert(0, folder)
    run(argv[0], run_name="__main__", **how)
