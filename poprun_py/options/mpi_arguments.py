"""MPI arguments: classifies the user's arguments for mpirun (--mpi-global-args and similar) by their recipient.

-x NAME[=VALUE]              the launcher: with any MPI, the supervisor sets the environment of its instance; a note
                             if NAME is not set
--bind-to PLACE              dropped with a note: the supervisors bind the instances
options of Open MPI          passed to Open MPI; dropped with a note for MPICH and Slurm, which refuse them
anything else                passed unchanged
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

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

#: Those of them that ask for what every job of poprun-py has.
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
        rest = _without_binding(_without_x(words, environ, environment, notes), notes)
        return tuple(rest if starter == "openmpi" else _without_openmpi(rest, starter, notes))

    everywhere, local = passed(options.mpi_global_args), passed(options.mpi_local_args)
    environments: dict[int, dict[str, str]] = {}
    mistakes = []
    for index, words in options.instance_mpi_local_args:
        rest = _without_x(words, environ, environments.setdefault(index, {}), notes)
        if rest:
            mistakes.append(
                f"--instance-mpi-local-args {index}:{' '.join(words)}: one instance takes -x NAME=VALUE only, not "
                f"{rest[0]}; use --mpi-local-args for all of them"
            )
    if mistakes:
        raise UsageError(mistakes)
    return MpiArguments(everywhere, local, environment, environments, tuple(notes))


def tcp_network(words: Iterable[str]) -> str | None:
    """Return the interface or subnet that ``words`` name for Open MPI (``--mca btl_tcp_if_include eth0``)."""
    return next((value for name, value in pairwise(words) if name in _NETWORKS), None)


def _without_x(
    words: tuple[str, ...], environ: Mapping[str, str], environment: dict[str, str], notes: list[str]
) -> list[str]:
    """Move every ``-x`` to ``environment``, except a variable that is not set."""
    rest, waiting = [], list(words)
    while waiting:
        word = waiting.pop(0)
        if word != "-x" or not waiting:
            rest.append(word)
            continue
        name, equals, value = waiting.pop(0).partition("=")
        if equals or name in environ:
            environment[name] = value if equals else environ[name]
        else:
            notes.append(f"-x {name} has no effect: {name} is not set")
    return rest


def _without_binding(words: list[str], notes: list[str]) -> list[str]:
    """Drop ``--bind-to``: the supervisors bind, and Open MPI refuses the option if it is given twice."""
    rest, waiting = [], list(words)
    while waiting:
        word = waiting.pop(0)
        if word.lstrip("-") != "bind-to" or not word.startswith("-") or not waiting:
            rest.append(word)
            continue
        binding = waiting.pop(0)
        strategy = _PLACEMENTS.get(binding, "spreadnuma")
        notes.append(f"{word} {binding} is ignored; use --process-placement {strategy} instead")
    return rest


def _without_openmpi(words: list[str], starter: str, notes: list[str]) -> Iterator[str]:
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        values = _OPENMPI.get(word.lstrip("-")) if word.startswith("-") else None
        if values is None:
            yield word
            continue
        dropped = " ".join([word, *waiting[:values]])
        del waiting[:values]
        if word.lstrip("-") not in _ALWAYS:
            notes.append(f"{dropped} is an option of Open MPI; {starter} is started without it")
