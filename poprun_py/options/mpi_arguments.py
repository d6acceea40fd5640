"""MPI arguments: classifies the user's arguments for mpirun (--mpi-global-args and similar) by their recipient.

-x NAME[=VALUE]              the launcher: with any MPI, the supervisor sets the environment of its instance; a note
                             if NAME is not set
--bind-to PLACE              dropped with a note: the supervisors bind the instances
options of Open MPI          passed to Open MPI; dropped with a note for MPICH and Slurm, which refuse them
anything else                passed unchanged
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise

from poprun_py.errors import UsageError
from poprun_py.options.option_table import LaunchOptions

#: Options of Open MPI, without dashes -> number of values that follow.
_OPENMPI: dict[str, int] = {
    "allow-run-as-root": 0,
    "display-map": 0,
    "gmca": 2,
    "map-by": 1,
    "mca": 2,
    "merge-stderr-to-stdout": 0,
    "nooversubscribe": 0,
    "output": 1,
    "output-filename": 1,
    "oversubscribe": 0,
    "pmixmca": 2,
    "prtemca": 2,
    "rank-by": 1,
    "report-bindings": 0,
    "tag-output": 0,
    "timestamp-output": 0,
}

#: The same with the options that any MPI is given here.
_VALUES = _OPENMPI | {"x": 1, "bind-to": 1}

#: Those of Open MPI that ask for what every job of poprun-py has.
_ALWAYS = ("allow-run-as-root", "oversubscribe", "tag-output")

#: Objects that mpirun may bind to -> the strategy that does so; all others are parts of a NUMA node, or several.
_PLACEMENTS = {"core": "spreadcore", "hwthread": "spreadcore", "none": "disabled"}

#: Parameters of Open MPI that choose a network.
_NETWORKS = ("btl_tcp_if_include", "oob_tcp_if_include")


@dataclass(frozen=True)
class MpiArguments:
    """The result: ``everywhere`` and ``local`` are for the command, the environments for all instances or for one."""

    everywhere: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    environments: Mapping[int, Mapping[str, str]] | None = None
    notes: tuple[str, ...] = ()

    def environment_of(self, instance: int) -> dict[str, str]:
        return {**(self.environment or {}), **(self.environments or {}).get(instance, {})}


def classify_arguments(options: LaunchOptions, *, starter: str, environ: Mapping[str, str]) -> MpiArguments:
    """Classify the arguments for ``starter``: mpich, openmpi or slurm; raise UsageError for what cannot be local."""
    environment: dict[str, str] = {}
    notes: list[str] = []

    def passed(words: tuple[str, ...]) -> tuple[str, ...]:
        rest = _without_x(words, environ, environment, notes)
        return tuple(word for option in rest if not _is_dropped(option, starter, notes) for word in option)

    everywhere, local = passed(options.mpi_global_args), passed(options.mpi_local_args)
    environments: dict[int, dict[str, str]] = {}
    mistakes = []
    for index, words in options.instance_mpi_local_args:
        rest = _without_x(words, environ, environments.setdefault(index, {}), notes)
        if rest:
            mistakes.append(
                f"--instance-mpi-local-args {index}:{' '.join(words)}: one instance takes -x NAME=VALUE only, not "
                f"{rest[0][0]}; use --mpi-local-args for all of them"
            )
    if mistakes:
        raise UsageError(mistakes)
    return MpiArguments(everywhere, local, environment, environments, tuple(notes))


def tcp_network(words: Iterable[str]) -> str | None:
    """Return the interface or subnet that ``words`` name for Open MPI (``--mca btl_tcp_if_include eth0``)."""
    return next((value for name, value in pairwise(words) if name in _NETWORKS), None)


def _without_x(
    words: tuple[str, ...], environ: Mapping[str, str], environment: dict[str, str], notes: list[str]
) -> list[list[str]]:
    """Return the options with their values; move every ``-x`` to ``environment``, unless its variable is not set."""
    rest, waiting = [], iter(words)
    for word in waiting:
        option = [word, *islice(waiting, _VALUES.get(_name(word), 0))]
        if word != "-x" or len(option) == 1:
            rest.append(option)
            continue
        name, equals, value = option[1].partition("=")
        if equals or name in environ:
            environment[name] = value if equals else environ[name]
        else:
            notes.append(f"-x {name} has no effect: {name} is not set")
    return rest


def _is_dropped(option: list[str], starter: str, notes: list[str]) -> bool:
    """Whether ``starter`` gets no such option: Open MPI also refuses ``--bind-to`` if it is given twice."""
    name, text = _name(option[0]), " ".join(option)
    if name == "bind-to" and len(option) > 1:
        strategy = _PLACEMENTS.get(option[1], "spreadnuma")
        notes.append(f"{text} is ignored; use --process-placement {strategy} instead")
        return True
    if starter == "openmpi" or name not in _OPENMPI:
        return False
    if name not in _ALWAYS:
        notes.append(f"{text} is an option of Open MPI; {starter} is started without it")
    return True


def _name(word: str) -> str:
    """The name of an option without its dashes; '' for any other word."""
    return word.lstrip("-") if word.startswith("-") else ""
