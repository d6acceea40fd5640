"""Restarts: a job started again after failures that a restart may cure, up to --max-restarts times."""

from __future__ import annotations

import math
import os
import signal
import time

from poprun_py.job.event_loop import EventLoop
from poprun_py.job.mpirun import open_standard_streams
from poprun_py.job.stdin import StdinReader
from poprun_py.linux import processes
from poprun_py.linux.event_sources import SignalPipe
from poprun_py.linux.job_record import JobRecord, new_folder, remove_abandoned, temporary_folders
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.instance_logs import held_logs
from poprun_py.output.log import Log
from poprun_py.output.screen import Screen
from poprun_py.plan.launch_plan import LaunchPlan

#: What a shell reads even within double quotes, in which Open MPI passes paths through ssh.
_READ_BY_SHELLS = frozenset('"$`\\!\r\n')

_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_with_restarts(plan: LaunchPlan, options: LaunchOptions) -> int:
    """Run the job, with its restarts, and clean up after it; return its exit code."""
    open_standard_streams()
    processes.adopt_orphans()
    signals = SignalPipe(_SIGNALS)
    screen = Screen(signals.wake, live_view=_wants_live_view(options))
    if options.print_topology or options.verbosity > 1:
        from poprun_py.plan.plan_report import topology_report  # not needed by most jobs

        screen.stdout(topology_report(plan, options).encode())
    log = Log(options.verbosity, screen.stderr)
    record = _new_record(log, crosses_shells=bool(plan.remote_hosts))
    try:
        with held_logs(options.log_dir):
            return _run_repeatedly(plan, options, signals=signals, screen=screen, record=record)
    finally:
        screen.close()
        if record:
            record.close()


def _run_repeatedly(
    plan: LaunchPlan, options: LaunchOptions, *, signals: SignalPipe, screen: Screen, record: JobRecord | None
) -> int:
    stdin = StdinReader()
    deadline = math.inf if options.timeout is None else time.monotonic() + options.timeout
    restart = 0
    while True:
        loop = EventLoop(
            plan,
            options,
            signals=signals,
            screen=screen,
            stdin=stdin,
            record=record,
            restart=restart,
            deadline=deadline,
        )
        try:
            code = loop.run()
        except BaseException:
            processes.end_descendants(timeout=1.0)
            raise
        if restart == options.max_restarts or not loop.job.may_restart:
            return code
        restart += 1
        screen.close()  # ends its threads: a process with threads should not fork
        text = f"poprun-py: the job starts again (restart {restart} of {options.max_restarts})"
        if stdin.has_read:
            text += "; input from stdin that was passed on before is not repeated"
        screen.stderr(f"{text}\n".encode())


def _wants_live_view(options: LaunchOptions) -> bool:
    if options.progress == "auto":
        return os.environ.get("TERM", "dumb") != "dumb" and os.isatty(2)
    return options.progress == "on"


def _new_record(log: Log, *, crosses_shells: bool = False) -> JobRecord | None:
    """Remove the files of jobs whose processes were all killed; return the record of a new job.

    None if it cannot be created: the job works without it. ``crosses_shells``: its path is passed to other hosts.
    """
    for temporary in temporary_folders():
        if crosses_shells and _READ_BY_SHELLS & {*temporary}:
            log.info(f"The job has no folder below {temporary!r}: shells of other hosts would not read it as it is")
            continue
        try:
            for path in remove_abandoned(temporary):
                log.debug(f"Removed {path}, which a job left whose processes were all killed")
            return JobRecord(new_folder(temporary))
        except OSError as error:
            log.info(f"The job has no folder below {temporary}: {error.filename or temporary}: {error.strerror}")
    log.info("The job has no folder of its own, and runs without it")
    return None
