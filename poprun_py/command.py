"""Command: what one command line makes the launcher do; reads, plans, and prints the plan or carries it out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poprun_py.cluster import find_cluster
from poprun_py.errors import PoprunError
from poprun_py.log import Log
from poprun_py.machine import Machine
from poprun_py.mpi import find_mpi
from poprun_py.options import LaunchOptions
from poprun_py.parser import parse
from poprun_py.plan import LaunchPlan, plan
from poprun_py.pod import in_pod
from poprun_py.program import find_program
from poprun_py.vipu import Decision, Request, request

if TYPE_CHECKING:
    from poprun_py.partitions import PartitionFile

__all__ = ["execute"]


def execute(argv: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    try:
        return _act(parse(argv, os.environ))
    except PoprunError as error:
        for line in error.lines:
            _say(line)
        return error.exit_code


def _act(options: LaunchOptions) -> int:
    text = _text(options)
    if text is not None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    return _print(options) if options.dry_run else _run(options)


def _text(options: LaunchOptions) -> str | None:
    """What is printed without looking at the machine; None where a job is to be planned."""
    if options.help:
        from poprun_py.help import help_text  # click is only needed here

        return help_text(_columns())
    if options.version or "version_format" in options.given:
        from poprun_py.versions import versions_text  # slow to import

        return versions_text(options.version_format)
    if options.completion:
        from poprun_py.completion import completion_script

        return completion_script(options.completion)
    return None


def _print(options: LaunchOptions) -> int:
    """--dry-run: look, plan and print; nothing is started or written."""
    from poprun_py.printed import printed

    preparation = _Preparation.of(options)
    wanted = preparation.wanted
    decision = _partition_file().look(wanted) if wanted else None
    text = printed(preparation.job(decision), options, decision)
    sys.stdout.buffer.write(os.fsencode(text))  # words of a command need not be UTF-8
    sys.stdout.flush()
    return 0


def _run(options: LaunchOptions) -> int:
    from poprun_py.run import run  # not needed to print a plan

    preparation = _Preparation.of(options)
    if options.export_config:
        from poprun_py.config import export

        export(options)
    with _partition(preparation.wanted, options) as decision:
        return run(preparation.job(decision), options)


@contextmanager
def _partition(wanted: Request | None, options: LaunchOptions) -> Iterator[Decision | None]:
    """Have the partition that the job wants, if it wants one."""
    if wanted is None:
        yield None
        return
    log = Log(options.verbosity, _write)
    log.info(f"V-IPU server address picked up from '{wanted.server.source}': {wanted.server.address}")
    with _partition_file().held(wanted) as decision:
        decision.explain(log)
        yield decision


@dataclass(frozen=True)
class _Preparation:
    """All that was found before the partition is known; finding it has named what is wrong."""

    options: LaunchOptions
    machine: Machine
    base: LaunchPlan
    wanted: Request | None

    @classmethod
    def of(cls, options: LaunchOptions) -> _Preparation:
        machine = Machine.here()
        wanted = request(options, machine.environ)
        return cls(options, machine, _planned(options, machine), wanted)

    def job(self, decision: Decision | None) -> LaunchPlan:
        return in_pod(self.base, self.options, environ=self.machine.environ, wanted=self.wanted, decision=decision)


def _planned(options: LaunchOptions, machine: Machine) -> LaunchPlan:
    executable = find_program(options.program[0], environ=machine.environ, cwd=machine.cwd)
    installation = find_mpi(options.mpi, environ=machine.environ, cwd=machine.cwd, python=machine.python)
    cluster = find_cluster(options, environ=machine.environ, nodename=machine.nodename)
    return plan(options, machine=machine, installation=installation, executable=executable, cluster=cluster)


def _partition_file() -> PartitionFile:
    from poprun_py.partitions import partition_file  # few jobs have a partition

    return partition_file(os.environ, _say)


def _say(line: str) -> None:
    _write(os.fsencode(f"poprun-py: {line}\n"))


def _write(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.flush()


def _columns() -> int:
    try:
        return min(100, os.get_terminal_size(1).columns)
    except OSError:
        return 100
