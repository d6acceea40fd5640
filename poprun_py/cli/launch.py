"""Launch: a job from its options to its exit code: inspects the machine, plans, takes a partition, runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from popdist_py import trace
from popdist_py.environment import TRACE_FOLDER, TRACE_LIMIT
from poprun_py.errors import ProgramError, UsageError
from poprun_py.linux.hidden_values import hide_values
from poprun_py.linux.limits import allow_open_files
from poprun_py.options.option_names import is_option
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import Log, say, write_stderr
from poprun_py.output.standard_output import write_stdout
from poprun_py.plan import launch_plan
from poprun_py.plan.launch_plan import SSH_VARIABLE, LaunchPlan
from poprun_py.plan.pod_environment import with_pod_environment
from poprun_py.site.cluster import SLURM, Cluster, find_cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MPI_FAMILIES, MpiInstallation, find_mpi
from poprun_py.site.program_path import find_program

if TYPE_CHECKING:
    from poprun_py.vipu.partition import PartitionAssignment, PartitionRequest
    from poprun_py.vipu.partition_file import PartitionFile

Found = TypeVar("Found")


def dry_run(options: LaunchOptions) -> int:
    """Plan the job and print the plan (--dry-run); nothing is started or written."""
    from poprun_py.plan.plan_report import report

    preparation = _Preparation.of(options)
    request = preparation.request
    assignment = _partition_file().preview(request) if request else None
    text = report(preparation.plan(assignment), options, assignment)
    write_stdout(os.fsencode(text))  # words of a command may not be UTF-8
    if options.export_config:
        say(f"--export-config {options.export_config}: nothing is written with --dry-run; leave out one of them")
    return 0


def launch(options: LaunchOptions) -> int:
    """Run the job; return its exit code."""
    from poprun_py.job.restarts import run_with_restarts  # not needed to print a plan
    from poprun_py.linux.processes import proc_fault

    if options.backend != "inprocess" and (fault := proc_fault()):
        raise UsageError([fault])
    hide_values(_assignments(options))
    allow_open_files(options.num_instances)
    _record(options)
    with trace.span("plan", trace.Category.LAUNCH):
        preparation = _Preparation.of(options)
    if options.export_config:
        from poprun_py.options.config_file import export

        export(options)
    with _partition(preparation.request, options) as assignment:
        plan = preparation.plan(assignment)
        for note in plan.notes:
            say(note)
        if options.backend == "inprocess":
            from poprun_py.job.in_process import run_in_process

            return run_in_process(plan)
        code = run_with_restarts(plan, options)
    if options.trace and (lost := _lost_records(options.trace)):
        say(
            f"--trace {options.trace} is incomplete: {lost:,} records are missing; free space on its disk, or raise "
            f"{TRACE_LIMIT} (MiB)"
        )
    return code


def _record(options: LaunchOptions) -> None:
    """Record a trace of the launcher, if --trace or its variable requests it."""
    if options.trace and (fault := _trace_fault(options.trace)):
        raise UsageError([f"--trace {options.trace}: {fault}; name a new folder"])
    folder = options.trace or os.environ.get(TRACE_FOLDER)
    if folder and options.backend != "inprocess":
        trace.start(folder, role="launcher")


def _trace_fault(folder: str) -> str:
    """Return why a trace cannot be recorded in ``folder``, which is created if necessary; '' if it can."""
    try:
        os.makedirs(folder, exist_ok=True)
        names = os.listdir(folder)
    except OSError as error:
        return f"it cannot be used: {error.strerror}"
    if any(map(_is_trace, names)):
        return "holds the trace of another run"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written to"


def _lost_records(folder: str) -> int:
    """The number of records that did not fit, in all traces of a folder."""
    with suppress(OSError):
        traces = [os.path.join(folder, name) for name in os.listdir(folder) if _is_trace(name)]
        return sum(map(trace.dropped_records, traces))
    return 0


def _is_trace(name: str) -> bool:
    return name.endswith(trace.SUFFIX)


def _assignments(options: LaunchOptions) -> Iterator[tuple[str, str]]:
    """NAME=VALUE of the command line: before the program, and after -x."""
    yield from options.assignments
    per_instance = (words for _, words in options.instance_mpi_local_args)
    for words in (options.mpi_global_args, options.mpi_local_args, *per_instance):
        for name, equals, value in (word.partition("=") for before, word in pairwise(words) if before == "-x"):
            if equals:
                yield name, value


@contextmanager
def _partition(request: PartitionRequest | None, options: LaunchOptions) -> Iterator[PartitionAssignment | None]:
    """Hold the partition that the job needs, if it needs one."""
    if request is None:
        yield None
        return
    log = Log(options.verbosity, write_stderr)
    log.info(f"V-IPU server address picked up from '{request.server.source}': {request.server.address}")
    with _partition_file().held(request) as assignment:
        assignment.log_to(log)
        yield assignment


@dataclass(frozen=True)
class _Preparation:
    """Everything that is determined before the partition; mistakes found on the way are reported together."""

    options: LaunchOptions
    machine: Machine
    base: LaunchPlan
    request: PartitionRequest | None

    @classmethod
    def of(cls, options: LaunchOptions) -> _Preparation:
        machine = Machine.here()
        mistakes: list[str] = []
        cluster = _collecting(
            mistakes, lambda: find_cluster(options, environ=machine.environ, nodename=machine.nodename)
        )
        _collecting(mistakes, lambda: _check_ssh(machine, cluster))
        request = _collecting(mistakes, lambda: _request(options, machine.environ))
        if mistakes:
            raise UsageError(mistakes)
        return cls(options, machine, _planned(options, machine, cluster), request)

    def plan(self, assignment: PartitionAssignment | None) -> LaunchPlan:
        return with_pod_environment(
            self.base, self.options, environ=self.machine.environ, request=self.request, assignment=assignment
        )


def _collecting(mistakes: list[str], find: Callable[[], Found]) -> Found | None:
    """Return the result of ``find``; if it raises UsageError, add its mistakes to ``mistakes`` and return None."""
    try:
        return find()
    except UsageError as error:
        mistakes += error.mistakes
        return None


def _request(options: LaunchOptions, environ: Mapping[str, str]) -> PartitionRequest | None:
    if not options.requests_partition(environ):
        return None
    from poprun_py.vipu.partition import partition_request  # few jobs have one, and the import takes 3 ms

    return partition_request(options, environ)


def _check_ssh(machine: Machine, cluster: Cluster | None) -> None:
    """Raise UsageError if other hosts are to be reached with a program that does not exist."""
    ssh = machine.environ.get(SSH_VARIABLE)
    if not ssh or not _is_over_ssh(cluster):
        return
    from shutil import which  # slow to import, and rarely needed

    if which(ssh, path=machine.environ.get("PATH")) is None:
        raise UsageError(
            [f"{SSH_VARIABLE}={ssh}: there is no such program, with which hosts are reached; correct or unset it"]
        )


def _is_over_ssh(cluster: Cluster | None) -> bool:
    return cluster is not None and cluster.starter != SLURM and not all(map(cluster.is_here, cluster.hosts))


def _check_path(installation: MpiInstallation) -> None:
    """Raise UsageError if other hosts' shells would not pass on the path of the MPI as it is."""
    family, path = MPI_FAMILIES[installation.kind], os.path.dirname(installation.launcher)
    characters = "".join(dict.fromkeys(character for character in path if character in family.read_by_shells))
    if characters:
        raise UsageError(
            [
                f"{installation.launcher}: this MPI cannot start its processes on other hosts, whose shells "
                f"interpret {characters!r} in its path; name one in another folder with --mpi"
            ]
        )


def _planned(options: LaunchOptions, machine: Machine, cluster: Cluster | None) -> LaunchPlan:
    executable = _executable(options.program, machine)
    installation = find_mpi(options.mpi, environ=machine.environ, cwd=machine.cwd, python=machine.python)
    if _is_over_ssh(cluster):
        _check_path(installation)
    return launch_plan.plan(
        options, machine=machine, installation=installation, executable=executable, cluster=cluster
    )


def _executable(program: tuple[str, ...], machine: Machine) -> str:
    """The file of the program; a missing one followed by options of poprun-py was probably meant as a value."""
    try:
        return find_program(program[0], environ=machine.environ, cwd=machine.cwd)
    except ProgramError as error:
        option = next((word for word in program[1:] if word == "--" or is_option(word)), None)
        if option is None:
            raise
        why = str(error).partition(";")[0]
        raise UsageError(
            [f"{why}; it is where the program is expected, before {option}: is it a value without its option?"]
        ) from None


def _partition_file() -> PartitionFile:
    from poprun_py.vipu.partition_file import partition_file  # few jobs have a partition

    return partition_file(os.environ, say)
