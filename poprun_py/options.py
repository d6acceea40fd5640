"""Options: the table of everything the command line understands, and the frozen result of reading one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from popdist_py.errors import LayoutError
from popdist_py.layout import Layout
from poprun_py import words
from poprun_py.errors import UsageError

__all__ = ["OPTIONS", "LaunchOptions", "Option", "checked"]


@dataclass(frozen=True)
class Option:
    """One row: ``--name``, how its value is read, where it goes and what --help says of it."""

    name: str
    group: str
    help: str
    read: Callable[[str], object] | None = None  # None: a flag, which takes a word only after "="
    metavar: str = ""
    letter: str = ""  # one-letter spelling
    field: str = ""  # of LaunchOptions; the name with underscores unless given
    adds: int = 0  # a flag that counts: how much one use adds

    @property
    def target(self) -> str:
        return self.field or self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("num-instances", "Shape", "Number of instances (processes). Default 1.", words.count, "N"),
    Option(
        "num-replicas",
        "Shape",
        "Total number of replicas, divided evenly among the instances. Default: one per instance.",
        words.count,
        "N",
    ),
    Option("ipus-per-replica", "Shape", "IPUs that one replica uses. Default 1.", words.count, "N"),
    Option(
        "print-topology", "Shape", "Print hosts, instances and replicas as a table.", words.boolean, "yes|no"
    ),
    Option(
        "only-output-from-instance",
        "Output",
        "Show the output of this instance only; when another one fails, its last lines are shown all the same.",
        words.index,
        "N",
    ),
    Option(
        "verbose", "Output", "Log what the launcher does; twice (-vv): log more.", letter="v", adds=1,
        field="verbosity",
    ),
    Option("vv", "Output", "The same as -vv.", adds=2, field="verbosity"),
    Option(
        "mpi",
        "MPI",
        "The MPI to use: mpich, openmpi, or the path of an mpirun or of its installation. Default: "
        "$POPRUN_PY_MPI, else what $MPI4PY_LIBMPI belongs to, else mpirun on PATH, else the MPI from the "
        "package index beside this Python.",
        words.text,
        "NAME|PATH",
    ),
    Option("grace", "Execution", "Seconds to end by itself after Ctrl-C. Default 10.", words.seconds, "S"),
    Option("timeout", "Execution", "End the job after this many seconds.", words.seconds, "S"),
    Option("dry-run", "General", "Print what would be started, and start nothing."),
    Option("version", "General", "Print the version."),
    Option("help", "General", "Print this text.", letter="h"),
)  # fmt: skip


#: More processes than any host runs well; a number beyond is a slip of the keyboard.
_MOST_ON_A_HOST = 4096


@dataclass(frozen=True)
class LaunchOptions:
    """One command line, read and checked; ``program`` is everything after the options."""

    program: tuple[str, ...] = ()
    num_instances: int = 1
    num_replicas: int = 1
    ipus_per_replica: int = 1
    print_topology: bool = False
    only_output_from_instance: int | None = None
    verbosity: int = 0
    mpi: str | None = None
    grace: float = 10.0
    timeout: float | None = None
    dry_run: bool = False
    version: bool = False
    help: bool = False

    @property
    def layout(self) -> Layout:
        return Layout.uniform(num_replicas=self.num_replicas, num_instances=self.num_instances)


def checked(
    values: Mapping[str, Any], program: tuple[str, ...], mistakes: Sequence[str] = (), broken: Set[str] = frozenset()
) -> LaunchOptions:
    """Make LaunchOptions of the values that were given; raise UsageError with all that is wrong.

    ``mistakes`` were found before, ``broken`` are the fields they concern; those are not looked at again.
    Without ``--num-replicas`` every instance has one replica.
    """
    options = LaunchOptions(**{"num_replicas": values.get("num_instances", 1), **values, "program": program})
    if options.help or options.version:
        return options
    found = [*mistakes, *(text for text, fields in _misfits(options) if not fields & broken)]
    if not program and not mistakes:
        found.append("no program was given; end the command with one, such as: poprun-py python train.py")
    if found:
        raise UsageError(found)
    return options


def _misfits(options: LaunchOptions) -> Iterator[tuple[str, set[str]]]:
    """What does not fit together, and the fields that each misfit was seen in."""
    instances, replicas, shown = options.num_instances, options.num_replicas, options.only_output_from_instance
    if instances > _MOST_ON_A_HOST:
        yield (
            f"--num-instances {instances}: one host takes at most {_MOST_ON_A_HOST} instances; give fewer",
            {"num_instances"},
        )
    elif instances > replicas:
        yield (
            f"--num-instances {instances} --num-replicas {replicas}: every instance needs a replica, but there "
            f"are {instances} instances for {replicas}; use --num-replicas {instances} or --num-instances {replicas}",
            {"num_instances", "num_replicas"},
        )
    else:
        try:
            _ = options.layout
        except LayoutError as error:
            yield f"--num-instances {instances} --num-replicas {replicas}: {error}", {"num_instances", "num_replicas"}
    if shown is not None and shown >= instances:
        yield (
            f"--only-output-from-instance {shown}: there is no such instance; use 0"
            + (f" to {instances - 1}" if instances > 1 else ""),
            {"num_instances"},
        )
