"""Restarts: runs a job, and runs it again while it fails in a way that need not come again and restarts are left."""

from __future__ import annotations

import math
import os
import shutil
import signal
import tempfile
import time

from popdist_py.environment import EXECUTABLE_CACHE_PATH
from poprun_py.job.event_loop import Run
from poprun_py.job.mpirun import open_standard_streams
from poprun_py.job.stdin import Input
from poprun_py.linux import processes
from poprun_py.linux.leftovers import FOLDER_PREFIX, sweep
from poprun_py.linux.signals import Wakeup
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import Log
from poprun_py.output.screen import Screen
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.plan.plan_report import topology

__all__ = ["run"]

_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(plan: LaunchPlan, options: LaunchOptions) -> int:
    """Start the job, wait for its end, leave nothing behind; return its exit code."""
    open_standard_streams()
    processes.adopt_orphans()
    wakeup = Wakeup(_SIGNALS)
    screen = Screen(wakeup.nudge, pictures=_wants_pictures(options))
    if options.print_topology or options.verbosity > 1:
        screen.stdout(topology(plan, options).encode())
    log = Log(options.verbosity, screen.stderr)
    for path in sweep(since=0.0):  # of jobs all of whose processes were killed at once
        log.debug(f"Removed {path}, which nobody uses")
    folder = _new_folder(options)
    try:
        return _repeated(plan, options, wakeup=wakeup, screen=screen, folder=folder)
    finally:
        screen.close()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _repeated(plan: LaunchPlan, options: LaunchOptions, *, wakeup: Wakeup, screen: Screen, folder: str) -> int:
    stdin = Input()
    deadline = math.inf if options.timeout is None else time.monotonic() + options.timeout
    restart = 0
    while True:
        one = Run(
            plan,
            options,
            wakeup=wakeup,
            screen=screen,
            stdin=stdin,
            folder=folder,
            restart=restart,
            deadline=deadline,
        )
        code = one.run()
        if restart == options.max_restarts or not one.may_restart:
            return code
        restart += 1
        screen.close()  # a process with threads had better not fork
        screen.stderr(f"poprun-py: the job starts again (restart {restart} of {options.max_restarts})\n".encode())


def _wants_pictures(options: LaunchOptions) -> bool:
    if options.progress == "auto":
        return os.environ.get("TERM", "dumb") != "dumb" and os.isatty(2)
    return options.progress == "on"


def _new_folder(options: LaunchOptions) -> str:
    """A name for the job's own cache of executables, unless the user has one; each host makes its own."""
    if options.executable_cache_path or os.environ.get(EXECUTABLE_CACHE_PATH):
        return ""
    name = f"{FOLDER_PREFIX}{os.uname().nodename}.{os.getpid()}.{os.urandom(8).hex()}"
    return os.path.join(tempfile.gettempdir(), name)
