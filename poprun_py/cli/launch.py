"""Launch: a job from its options to its end: looks at the machine, plans, takes a partition, and runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from poprun_py.cli.console import say, write
from poprun_py.errors import ProgramError, UsageError
from poprun_py.options.option_names import is_ours
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import Log
from poprun_py.plan.launch_plan import LaunchPlan, plan
from poprun_py.plan.pod_environment import in_pod
from poprun_py.site.cluster import Cluster, find_cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import find_mpi
from poprun_py.site.program_path import find_program
from poprun_py.vipu.partition import Decision, Request, request

if TYPE_CHECKING:
    from poprun_py.vipu.partition_file import PartitionFile

__all__ = ["launch", "look"]

Found = TypeVar("Found")


def look(options: LaunchOptions) -> int:
    """--dry-run: look, plan and print; nothing is started or written."""
    from poprun_py.plan.plan_report import printed

    preparation = _Preparation.of(options)
    wanted = preparation.wanted
    decision = _partition_file().look(wanted) if wanted else None
    text = printed(preparation.job(decision), options, decision)
    sys.stdout.buffer.write(os.fsencode(text))  # words of a command need not be UTF-8
    sys.stdout.flush()
    return 0


def launch(options: LaunchOptions) -> int:
    """Run the job; return its exit code."""
    from poprun_py.job.restarts import run  # not needed to print a plan

    preparation = _Preparation.of(options)
    if options.export_config:
        from poprun_py.options.config_file import export

        export(options)
    with _partition(preparation.wanted, options) as decision:
        if options.backend == "inprocess":
            from poprun_py.job.in_process import run_here

            return run_here(preparation.job(decision))
        return run(preparation.job(decision), options)


@contextmanager
def _partition(wanted: Request | None, options: LaunchOptions) -> Iterator[Decision | None]:
    """Have the partition that the job wants, if it wants one."""
    if wanted is None:
        yield None
        return
    log = Log(options.verbosity, write)
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
        mistakes: list[str] = []
        cluster = _noting(mistakes, lambda: find_cluster(options, environ=machine.environ, nodename=machine.nodename))
        wanted = _noting(mistakes, lambda: request(options, machine.environ))
        if mistakes:
            raise UsageError(mistakes)
        return cls(options, machine, _planned(options, machine, cluster), wanted)

    def job(self, decision: Decision | None) -> LaunchPlan:
        return in_pod(self.base, self.options, environ=self.machine.environ, wanted=self.wanted, decision=decision)


def _noting(mistakes: list[str], find: Callable[[], Found]) -> Found | None:
    """What ``find`` finds, or None and its mistakes added to the others."""
    try:
        return find()
    except UsageError as error:
        mistakes += error.mistakes
        return None


def _planned(options: LaunchOptions, machine: Machine, cluster: Cluster | None) -> LaunchPlan:
    executable = _executable(options.program, machine)
    installation = find_mpi(options.mpi, environ=machine.environ, cwd=machine.cwd, python=machine.python)
    return plan(options, machine=machine, installation=installation, executable=executable, cluster=cluster)


def _executable(program: tuple[str, ...], machine: Machine) -> str:
    """The program's file; where there is none, and options of ours follow, it was hardly meant to be the program."""
    try:
        return find_program(program[0], environ=machine.environ, cwd=machine.cwd)
    except ProgramError as error:
        ours = next((word for word in program[1:] if word == "--" or is_ours(word)), None)
        if ours is None:
            raise
        why = str(error).partition(";")[0]
        raise UsageError(
            [f"{why}; it stands where the program is expected, before {ours}: is it a value that lost its option?"]
        ) from None


def _partition_file() -> PartitionFile:
    from poprun_py.vipu.partition_file import partition_file  # few jobs have a partition

    return partition_file(os.environ, say)
