"""Options: how collectives run, from GCL_OPTIONS and its companions.

    GCL_OPTIONS='{"method": "meet_in_middle_ring", "syncful.useOptimisedLayout": false}'
    GCL_LOG_LEVEL=INFO  GCL_NUM_IO_TILES=32

A dotted name may also be an object in an object ({"syncful": {"useOptimisedLayout": false}}). Values may be JSON's
own, or strings as Poplar writes them ("false", "40"). GCL reference, section 11.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from gcl.errors import ArgumentError
from gcl.methods.method import Method, method_chain

__all__ = ["IO_TILES_VARIABLE", "LOG_LEVEL_VARIABLE", "MIN_IO_TILES", "OPTIONS_VARIABLE", "LogLevel", "Options"]

OPTIONS_VARIABLE, LOG_LEVEL_VARIABLE, IO_TILES_VARIABLE = "GCL_OPTIONS", "GCL_LOG_LEVEL", "GCL_NUM_IO_TILES"
MIN_IO_TILES = 32
_TILES_PER_IPU = 1472


class LogLevel(StrEnum):
    """How much GCL says; the names of Poplar's loggers."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERR = "ERR"
    OFF = "OFF"


@dataclass(frozen=True)
class Options:
    """What was asked for; the defaults are GCL's."""

    method: tuple[Method, ...] = (Method.AUTO,)
    use_replicated_implementation: bool = False
    max_bytes_per_tile: int | None = None
    use_syncless_collectives: bool | None = None
    use_optimised_layout: bool = True
    use_forwarding_to_support_strided_groups: bool | None = None
    log_level: LogLevel = LogLevel.OFF
    num_io_tiles: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], *, tiles_per_ipu: int = _TILES_PER_IPU) -> Options:
        """Read the variables; raise ArgumentError naming everything that is wrong in them."""
        faults: list[str] = []
        values = _read_options(environ.get(OPTIONS_VARIABLE, ""), faults)
        if environ.get(LOG_LEVEL_VARIABLE):
            _read(values, faults, LOG_LEVEL_VARIABLE, "log_level", _log_level, environ[LOG_LEVEL_VARIABLE])
        if environ.get(IO_TILES_VARIABLE):
            _read(
                values,
                faults,
                IO_TILES_VARIABLE,
                "num_io_tiles",
                lambda text: _io_tiles(text, tiles_per_ipu),
                environ[IO_TILES_VARIABLE],
            )
        if faults:
            raise ArgumentError("; ".join(faults))
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """The options in ``text`` alone, as GCL_OPTIONS has them."""
        return cls.from_environ({OPTIONS_VARIABLE: text})

    def __str__(self) -> str:
        """One option per line, under its own name."""
        names = {row.field: name for name, row in _TABLE.items()} | _VARIABLES
        return "\n".join(f"{names[field.name]} = {_text(getattr(self, field.name))}" for field in fields(self))


class _Fault(Exception):
    """What a value should have been."""


@dataclass(frozen=True)
class _Row:
    """An option: where it goes, and how its value is read."""

    field: str
    read: Callable[[object], object]


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
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _Fault("must be a whole number of at least 0")


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
    except _Fault:
        tiles = -1
    if tiles < MIN_IO_TILES or tiles % 2 or tiles >= tiles_per_ipu:
        raise _Fault(f"must be even, at least {MIN_IO_TILES} and below the {tiles_per_ipu} tiles of an IPU")
    return tiles


_TABLE: dict[str, _Row] = {
    "method": _Row("method", _methods),
    "useReplicatedImplementation": _Row("use_replicated_implementation", _boolean),
    "maxBytesPerTile": _Row("max_bytes_per_tile", _integer),
    "useSynclessCollectives": _Row("use_syncless_collectives", _automatic),
    "syncful.useOptimisedLayout": _Row("use_optimised_layout", _boolean),
    "syncful.useForwardingToSupportStridedGroups": _Row("use_forwarding_to_support_strided_groups", _automatic),
}
_VARIABLES = {"log_level": LOG_LEVEL_VARIABLE, "num_io_tiles": IO_TILES_VARIABLE}


def _read_options(text: str, faults: list[str]) -> dict[str, Any]:
    """Field -> value of the JSON object ``text``; what is wrong goes to ``faults``."""
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
        if row is None:
            faults.append(f"{OPTIONS_VARIABLE} has an unknown option {name!r}; there are {', '.join(_TABLE)}")
        elif row.field in values:
            faults.append(f"{OPTIONS_VARIABLE} has {name} twice; give it once")
        else:
            _read(values, faults, f"{OPTIONS_VARIABLE} {name}", row.field, row.read, value)
    return values


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its keys as written, also those written twice."""


def _flat(pairs: _Pairs, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in pairs:
        if isinstance(value, _Pairs):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
