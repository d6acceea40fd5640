"""In process: a job's only instance in the launcher's own process, for debuggers: no MPI, no supervisor, no tags."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from poprun_py.plan.launch_plan import LaunchPlan

__all__ = ["run_here"]


def run_here(plan: LaunchPlan) -> int:
    """Run the program with the environment of instance 0; the exit code, unless it leaves by SystemExit.

    A program of this very Python is imported, so that a debugger of the launcher sees it too; anything else takes
    this process over.
    """
    for name in plan.unset:
        os.environ.pop(name, None)
    os.environ.update(plan.instances[0].environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = _importable(plan.executable, plan.program)
    if run is None:
        sys.stdout.flush()
        os.execve(plan.executable, list(plan.program), dict(os.environ))
    run()
    return 0


def _importable(executable: str, program: Sequence[str]) -> Callable[[], Any] | None:
    """How to run ``python FILE ...`` or ``python -m MODULE ...`` here; None for everything else."""
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
