"""Rules: what the options of one command line must agree on; all that is wrong is told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from popdist_py.errors import LayoutError
from poprun_py.errors import UsageError
from poprun_py.options import LaunchOptions

__all__ = ["checked"]

#: More processes than any host runs well; a number beyond is a slip of the keyboard.
_MOST_ON_A_HOST = 4096

#: What is wrong, and the fields that it was seen in.
Misfit = tuple[str, set[str]]


def checked(
    values: Mapping[str, Any], program: tuple[str, ...], mistakes: Sequence[str] = (), broken: Set[str] = frozenset()
) -> LaunchOptions:
    """Make LaunchOptions of the values that were given; raise UsageError with all that is wrong.

    ``mistakes`` were found before, ``broken`` are the fields they concern; those are not looked at again.
    Without ``--num-replicas`` every instance has one replica.
    """
    replicas = values.get("num_instances", 1)
    given = frozenset(values)
    options = LaunchOptions(**{"num_replicas": replicas, **values, "program": program, "given": given})
    if options.help or options.version or options.completion:
        return options
    found = [*mistakes, *(text for text, fields in _misfits(options) if not fields & broken)]
    if not program and not mistakes:
        found.append("no program was given; end the command with one, such as: poprun-py python train.py")
    if found:
        raise UsageError(found)
    return options


def _misfits(options: LaunchOptions) -> Iterator[Misfit]:
    for rule in (_instances, _shown, _hosts):
        yield from rule(options)


def _instances(options: LaunchOptions) -> Iterator[Misfit]:
    instances, replicas = options.num_instances, options.num_replicas
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


def _shown(options: LaunchOptions) -> Iterator[Misfit]:
    instances, shown = options.num_instances, options.only_output_from_instance
    if shown is not None and shown >= instances:
        yield (
            f"--only-output-from-instance {shown}: there is no such instance; use 0"
            + (f" to {instances - 1}" if instances > 1 else ""),
            {"num_instances"},
        )


def _hosts(options: LaunchOptions) -> Iterator[Misfit]:
    if options.host is not None and options.host_file is not None:
        yield (
            f"--host {options.host} --hostfile {options.host_file}: both name the hosts; give one of them",
            {"host", "host_file"},
        )
