"""Validation: the rules that the options of a command line must meet together; all violations are reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from popdist_py.errors import LayoutError
from popdist_py.layout import device_size, divisors
from poprun_py.errors import UsageError
from poprun_py.options.option_names import option_of
from poprun_py.options.option_table import ILD_SIZE, LaunchOptions
from poprun_py.options.parsed_options import ParsedOptions

#: PopRun's variable for the log level, and its values as a verbosity.
_LOG_LEVEL = "POPRUN_LOG_LEVEL"
_VERBOSITY = {"INFO": 1, "DEBUG": 2, "TRACE": 2} | dict.fromkeys(("", "WARN", "ERR", "CRITICAL", "OFF"), 0)

#: More processes than any host runs well; a larger number is a typing error.
_MOST_ON_A_HOST = 4096

#: Larger numbers are rejected by the layout, and not checked any further.
_MOST_REPLICAS = 65536

#: Names the emulated Pod, and IPUs of the largest installation that Graphcore describes.
_SYSTEM, _LARGEST_SYSTEM = "IPU_EMU_SYSTEM", 65536

#: A message, and the fields that it concerns.
Violation = tuple[str, set[str]]


def validated(parsed: ParsedOptions, environ: Mapping[str, str]) -> LaunchOptions:
    """Return LaunchOptions with the values that were parsed; raise UsageError with all mistakes.

    The fields in which the parser has found mistakes are not checked again. Without ``--num-replicas`` every instance
    has one replica; without -v POPRUN_LOG_LEVEL sets the verbosity.
    """
    values, program = parsed.values, tuple(parsed.rest)
    verbosity = _VERBOSITY.get(environ.get(_LOG_LEVEL, "").upper(), 0)
    defaults = {"num_replicas": values.get("num_instances", 1), "verbosity": verbosity}
    options = LaunchOptions(**{**defaults, **values, "program": program, "explicit": frozenset(values)})
    if options.asks:
        return options
    violations = (text for text, fields in _violations(options, environ) if not fields & parsed.broken)
    messages = [*parsed.mistakes, *violations]
    if not program and not parsed.mistakes:
        messages.append("no program was given; end the command with one, such as: poprun-py python train.py")
    if messages:
        raise UsageError(messages)
    return options


def _violations(options: LaunchOptions, environ: Mapping[str, str]) -> Iterator[Violation]:
    for rule in (_instances, _domains, _shown, _one_instance, _either, _hosts):
        yield from rule(options)
    yield from _system(options, environ)
    yield from _log_level(environ)


def _instances(options: LaunchOptions) -> Iterator[Violation]:
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


def _shown(options: LaunchOptions) -> Iterator[Violation]:
    shown = options.only_output_from_instance
    if shown is not None and shown >= options.num_instances:
        yield f"--only-output-from-instance {shown}: {_no_such_instance(options)}", {"num_instances"}


def _domains(options: LaunchOptions) -> Iterator[Violation]:
    ilds, replicas = options.num_ilds, options.num_replicas
    fields = {"num_ilds", "num_replicas", "num_instances"}
    if ilds is None or replicas > _MOST_REPLICAS:
        return
    if replicas % ilds:
        yield (
            f"--num-ilds {ilds} --num-replicas {replicas}: every IPU-Link domain needs the same number of "
            f"replicas, but {replicas} is not divisible by {ilds}; use {divisors(replicas)} "
            f"domain{'s' * (replicas > 1)}",
            fields,
        )
    elif options.ipus > ILD_SIZE * ilds:
        yield (
            f"--num-ilds {ilds}: {_job(options)} need {options.ipus} IPUs, but {_some(ilds, 'IPU-Link domain')} "
            f"{'holds' if ilds == 1 else 'hold'} {ILD_SIZE * ilds} ({ILD_SIZE} each); use --num-ilds "
            f"{replace(options, num_ilds=None).ilds} or fewer replicas",
            fields | {"ipus_per_replica"},
        )


def _one_instance(options: LaunchOptions) -> Iterator[Violation]:
    last = options.num_instances - 1
    for instance, _ in options.instance_mpi_local_args:
        if instance > last:
            text = f"--instance-mpi-local-args {instance}: {_no_such_instance(options)}"
            yield text, {"num_instances", "instance_mpi_local_args"}
    if options.backend == "inprocess" and last:
        yield (
            f"--backend inprocess --num-instances {last + 1}: this process can only be one instance; use "
            "--num-instances 1 or another --backend",
            {"num_instances", "backend"},
        )


#: Pairs of options that exclude each other: their fields, and what both set.
_ALTERNATIVES = (
    ("host", "host_file", "name the hosts"),
    ("process_placement", "numa_aware", "set the placement of instances"),
)


def _either(options: LaunchOptions) -> Iterator[Violation]:
    for first, other, what in _ALTERNATIVES:
        if {first, other} <= options.explicit:
            names = (f"--{option_of(field).name} {_word(getattr(options, field))}" for field in (first, other))
            yield f"{' '.join(names)}: both {what}; give one of them", {first, other}
    if options.overwrite_config and not options.export_config:
        yield "--overwrite-config yes: there is no file to overwrite; add --export-config FILE", {"export_config"}


def _hosts(options: LaunchOptions) -> Iterator[Violation]:
    if options.host is None:
        return
    from poprun_py.options.host_list import from_list  # most jobs run on this host

    try:
        from_list(options.host, source=f"--host {options.host}")
    except UsageError as error:
        yield from ((mistake, {"host"}) for mistake in error.mistakes)


def _system(options: LaunchOptions, environ: Mapping[str, str]) -> Iterator[Violation]:
    try:
        size = _system_size(environ)
    except ValueError as error:
        yield str(error), set()
        return
    if options.ipus > size and options.num_replicas <= _MOST_REPLICAS:
        system = environ.get(_SYSTEM)
        named = f"{_SYSTEM}={system}" if system else "the largest system"
        fitting = size // options.ipus_per_replica
        remedy = f"use at most {_some(fitting, 'replica')}" if fitting else f"use at most {size} IPUs per replica"
        yield (
            f"--num-replicas {options.num_replicas} --ipus-per-replica {options.ipus_per_replica}: {_job(options)} "
            f"need {options.ipus} IPUs, but {named} has {size}; {remedy}" + (" or a larger system" if system else ""),
            {"num_replicas", "num_instances", "ipus_per_replica"},
        )


def _system_size(environ: Mapping[str, str]) -> int:
    """Return the number of IPUs of the Pod, by default of the largest one; raise ValueError for an unknown Pod."""
    name = environ.get(_SYSTEM, "")
    if not name:
        return _LARGEST_SYSTEM
    digits = name.lower().removeprefix("pod").lstrip("-_ ")
    size = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else 0
    if not 4 <= size <= _LARGEST_SYSTEM or size != device_size(size):
        raise ValueError(
            f"{_SYSTEM}={name}: there is no such system; use pod4, pod16, pod64, pod128, pod256 or a larger power of "
            f"two up to pod{_LARGEST_SYSTEM}"
        )
    return size


def _log_level(environ: Mapping[str, str]) -> Iterator[Violation]:
    level = environ.get(_LOG_LEVEL, "")
    if level.upper() not in _VERBOSITY:
        yield (
            f"{_LOG_LEVEL}={level}: there is no such level; use {', '.join(filter(None, _VERBOSITY))}",
            {"verbosity"},
        )


def _no_such_instance(options: LaunchOptions) -> str:
    last = options.num_instances - 1
    return "there is no such instance; use 0" + (f" to {last}" if last else "")


def _job(options: LaunchOptions) -> str:
    return f"{_some(options.num_replicas, 'replica')} of {_some(options.ipus_per_replica, 'IPU')}"


def _some(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
