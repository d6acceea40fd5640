"""Options: the settings of collectives, from GCL_OPTIONS and the other GCL environment variables.

    GCL_OPTIONS='{"method": "meet_in_middle_ring", "syncful.useOptimisedLayout": false}'
    GCL_LOG_LEVEL=INFO  GCL_NUM_IO_TILES=32

A dotted name may also be written as a nested object ({"syncful": {"useOptimisedLayout": false}}). Values may be JSON
values, or strings as Poplar writes them ("false", "40"). GCL reference, section 11.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from gcl.errors import ArgumentError
from gcl.fabric.tile_mapping import MIN_IO_TILES, TILES_PER_IPU, check_io_tiles
from gcl.scheduling.methods.method import Method, method_chain
from popdist_py.messages.suggestion import did_you_mean

OPTIONS_VARIABLE = "GCL_OPTIONS"
#: Where GCL finds its compiled code for tiles, which there is not here; a warning says so.
UNUSED_VARIABLES = ("GCL_LIBRARY_PATH", "GCL_GP_PATH")
SYNCLESS_WARNING = (
    "useSynclessCollectives is true in GCL_OPTIONS; GCL deprecated it in 2.6 and removed it in 3.0, so that every "
    "exchange has its sync here: leave it out"
)


class LogLevel(StrEnum):
    """How much is logged; the level names of Poplar."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERR = "ERR"
    OFF = "OFF"


@dataclass(frozen=True)
class Options:
    """The settings of collectives; the defaults are those of GCL.

    method                        one method for all phases, or a chain of methods
    use_replicated_implementation causes a warning only: every tensor belongs to a replicated graph
    max_bytes_per_tile            limit of one exchange; None: no limit
    use_syncless_collectives      removed in GCL 3.0: causes a warning only
    use_optimised_layout          send fragments from the tiles that hold them; else spread them evenly first
    use_forwarding_...            forward the copies of strided groups through the replicas in between; None: if a
                                  replica has 1 IPU
    log_level                     None: the level set by the program
    num_io_tiles                  number of tiles that collectives run on; None: all
    real_collectives              method auto runs the step programs that GCL would choose
    """

    method: tuple[Method, ...] = (Method.AUTO,)
    use_replicated_implementation: bool = False
    max_bytes_per_tile: int | None = None
    use_syncless_collectives: bool | None = None
    use_optimised_layout: bool = True
    use_forwarding_to_support_strided_groups: bool | None = None
    log_level: LogLevel | None = None
    num_io_tiles: int | None = None
    real_collectives: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether tensors are reduced directly (method auto), not by the step programs of a method."""
        return self.method == (Method.AUTO,)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], *, tiles_per_ipu: int = TILES_PER_IPU) -> Options:
        """Read the variables; raise one ArgumentError that names all mistakes in them."""
        faults: list[str] = []
        values = _read_options(environ.get(OPTIONS_VARIABLE, ""), faults)
        readers = {"GCL_NUM_IO_TILES": lambda text: _io_tiles(text, tiles_per_ipu)}
        for field, (name, read) in _VARIABLES.items():
            if environ.get(name):
                _read(values, faults, name, field, readers.get(name, read), environ[name])
        if faults:
            raise ArgumentError("; ".join(faults))
        return cls(**values)

    def __str__(self) -> str:
        """One option per line, under its own name."""
        names = {field: name for name, (field, _) in _TABLE.items()}
        names |= {field: name for field, (name, _) in _VARIABLES.items()}
        return "\n".join(f"{names[field.name]} = {_text(getattr(self, field.name))}" for field in fields(self))


class _Fault(Exception):
    """The fault of a value, worded to follow "it"."""


def _boolean(value: object) -> bool:
    known = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise _Fault("must be true or false")


def _automatic(value: object) -> bool | None:
    if isinstance(value, str) and value.lower() == "auto":
        return None
    try:
        return _boolean(value)
    except _Fault:
        raise _Fault("must be true, false or auto") from None


def _integer(value: object) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise _Fault("must be a whole number of at least 1")


def _methods(value: object) -> tuple[Method, ...]:
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise _Fault("must be the name of a method, or a list of names")
    try:
        return method_chain(value)
    except ArgumentError as error:
        raise _Fault(f"is not known: {error}") from None


def _log_level(value: object) -> LogLevel:
    if isinstance(value, str) and value.upper() in LogLevel.__members__:
        return LogLevel[value.upper()]
    raise _Fault(f"must be one of {', '.join(LogLevel)}")


def _io_tiles(value: object, tiles_per_ipu: int) -> int:
    try:
        tiles = _integer(value)
        check_io_tiles(tiles, tiles_per_ipu)
    except (_Fault, ArgumentError):
        raise _Fault(f"must be even, at least {MIN_IO_TILES} and below the {tiles_per_ipu} tiles of an IPU") from None
    return tiles


#: option -> the field that it sets, and the function that reads its value
_TABLE: dict[str, tuple[str, Callable[[object], object]]] = {
    "method": ("method", _methods),
    "useReplicatedImplementation": ("use_replicated_implementation", _boolean),
    "maxBytesPerTile": ("max_bytes_per_tile", _integer),
    "useSynclessCollectives": ("use_syncless_collectives", _automatic),
    "syncful.useOptimisedLayout": ("use_optimised_layout", _boolean),
    "syncful.useForwardingToSupportStridedGroups": ("use_forwarding_to_support_strided_groups", _automatic),
}
#: field -> its variable, and the function that reads it
_VARIABLES: dict[str, tuple[str, Callable[[object], object]]] = {
    "log_level": ("GCL_LOG_LEVEL", _log_level),
    "num_io_tiles": ("GCL_NUM_IO_TILES", _integer),
    "real_collectives": ("GCL_REAL_COLLECTIVES", lambda value: value == "1" or (value != "0" and _boolean(value))),
}


def _read_options(text: str, faults: list[str]) -> dict[str, Any]:
    """Field -> value of the JSON object ``text``; mistakes are added to ``faults``."""
    values: dict[str, Any] = {}
    if not text.strip():
        return values
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        faults.append(f'{OPTIONS_VARIABLE} is not JSON ({error}); write {OPTIONS_VARIABLE}=\'{{"method": "auto"}}\'')
        return values
    if not isinstance(pairs, _Pairs):
        faults.append(f"{OPTIONS_VARIABLE} is {text.strip()[:40]!r}; it must be a JSON object of options")
        return values
    for name, value in _flat(pairs):
        row = _TABLE.get(name)
        if row is None and any(option.startswith(f"{name}.") for option in _TABLE):
            faults.append(f"{OPTIONS_VARIABLE} {name} is {value!r}; it must be an object of its options")
        elif row is None:
            hint = did_you_mean(name, _TABLE)
            faults.append(f"{OPTIONS_VARIABLE} has an unknown option {name!r}; there are {', '.join(_TABLE)}{hint}")
        elif row[0] in values:
            faults.append(f"{OPTIONS_VARIABLE} has {name} twice; give it once")
        else:
            _read(values, faults, f"{OPTIONS_VARIABLE} {name}", *row, value)
    return values


class _Pairs(list[tuple[str, object]]):
    """A JSON object as a list of pairs, so that duplicate keys are found."""


def _flat(pairs: _Pairs, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in pairs:
        full = f"{prefix}{name}"
        if isinstance(value, _Pairs) and any(option.startswith(f"{full}.") for option in _TABLE):
            yield from _flat(value, f"{full}.")
        else:
            yield full, dict(value) if isinstance(value, _Pairs) else value


def _read(
    values: dict[str, Any], faults: list[str], name: str, field: str, read: Callable[[Any], object], value: object
) -> None:
    try:
        values[field] = read(value)
    except _Fault as fault:
        faults.append(f"{name} is {value!r}; it {fault}")


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "auto" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
