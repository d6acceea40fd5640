"""Command: what one command line makes the launcher do; reads, plans, and prints the plan or carries it out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from poprun_py.cluster import find_cluster
from poprun_py.errors import PoprunError
from poprun_py.machine import Machine
from poprun_py.mpi import find_mpi
from poprun_py.options import LaunchOptions
from poprun_py.parser import parse
from poprun_py.plan import LaunchPlan, plan
from poprun_py.program import find_program

__all__ = ["execute"]


def execute(argv: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    try:
        options = parse(argv, os.environ)
        return _act(options)
    except PoprunError as error:
        for line in error.lines:
            print(f"poprun-py: {line}", file=sys.stderr)
        return error.exit_code


def _act(options: LaunchOptions) -> int:
    if options.help:
        from poprun_py.help import help_text  # click is only needed here

        print(help_text(_columns()), end="")
        return 0
    if options.version:
        from importlib.metadata import version  # slow to import

        print(f"poprun-py {version('poprun-py')}")
        return 0
    job = _planned(options)
    if options.dry_run:
        text = (job.topology() if options.print_topology else "") + str(job)
        sys.stdout.buffer.write(os.fsencode(text))  # words of a command need not be UTF-8
        sys.stdout.flush()
        return 0
    from poprun_py.run import run  # not needed to print a plan

    return run(job, options)


def _planned(options: LaunchOptions) -> LaunchPlan:
    machine = Machine.here()
    executable = find_program(options.program[0], environ=machine.environ, cwd=machine.cwd)
    installation = find_mpi(options.mpi, environ=machine.environ, cwd=machine.cwd, python=machine.python)
    cluster = find_cluster(options, environ=machine.environ, nodename=machine.nodename)
    return plan(options, machine=machine, installation=installation, executable=executable, cluster=cluster)


def _columns() -> int:
    try:
        return min(100, os.get_terminal_size(1).columns)
    except OSError:
        return 100
