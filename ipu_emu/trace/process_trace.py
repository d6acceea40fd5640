"""ProcessTrace: the records of one process, read from its trace file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import ArgumentError
from ipu_emu.trace.sequence_spans import RECORDS, SequenceSpans
from popdist_py.environment import NAMES, RESTART_COUNT
from popdist_py.files.bounded_read import open_regular
from popdist_py.trace import NETWORK, PROFILE, WEIGHTS
from popdist_py.trace.records import (
    BEGIN,
    CHUNK,
    DEFINITION,
    END,
    HEADER,
    HEADER_BYTES,
    KEY,
    MAGIC,
    RECORD_WORDS,
    VALUE,
    VERSION,
    WORD_BYTES,
    ChunkKind,
    Kind,
)


@dataclass(frozen=True)
class Name:
    """The definition of a number in records: name, category, arguments."""

    name: str
    category: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessTrace:
    """Records of a process in the order in which they began, in nanoseconds of its host's monotonic clock.

    A span that was open when the process ended has the end 0. Sequences are resolved into their spans.
    """

    path: str
    process: Mapping[str, Any]
    facts: Mapping[str, Any]
    threads: Mapping[int, str]
    names: Mapping[int, Name]
    tracks: Mapping[int, Name]
    records: NDArray[Any]
    dropped: int


_UNDEFINED = Name("(no name)")
_OFFSET = ("at_ns", "offset_ns", "error_ns")


def read_process(path: str | os.PathLike[str]) -> ProcessTrace:
    """Read a trace file, also of a running or killed process; raise ArgumentError if it is not a trace."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            data = np.memmap(file, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: cannot be read as a trace: {error}") from error
    chunk_bytes, dropped = _header(data, path)
    definitions: list[dict[str, Any]] = []
    blocks: list[tuple[int, NDArray[np.int64]]] = []
    for start in range(HEADER_BYTES, len(data) - chunk_bytes + 1, chunk_bytes):
        chunk = data[start : start + chunk_bytes]
        kind, thread, *_ = CHUNK.unpack_from(chunk.data)
        if not chunk[: CHUNK.size].any():  # the rest was never written
            break
        if kind == ChunkKind.DEFINITIONS:
            definitions += _definitions(chunk.tobytes(), path)
        elif kind == ChunkKind.RECORDS:
            blocks.append((thread, chunk[CHUNK.size :].view(np.int64)))
    return _resolved(os.fspath(path), definitions, blocks, dropped)


def _header(data: NDArray[np.uint8], path: str | os.PathLike[str]) -> tuple[int, int]:
    if len(data) < HEADER_BYTES:
        raise ArgumentError(f"{path}: {len(data)} bytes are too short for a trace; give the folder of --trace")
    magic, version, chunk_bytes, dropped = HEADER.unpack_from(data.data)
    if magic != MAGIC or chunk_bytes < 2 * CHUNK.size or chunk_bytes % WORD_BYTES:
        raise ArgumentError(f"{path}: is not the trace of a process; give the folder of --trace or IPU_EMU_TRACE")
    if version != VERSION:
        raise ArgumentError(
            f"{path}: was recorded in version {version} of the format, but only version {VERSION} can be read; "
            "record it again"
        )
    return chunk_bytes, dropped


def _definitions(chunk: bytes, path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    at = CHUNK.size
    while at + DEFINITION.size <= len(chunk):
        (size,) = DEFINITION.unpack_from(chunk, at)
        if not size:
            return
        at += DEFINITION.size
        try:
            definition = json.loads(chunk[at : at + size])
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{path}: is damaged: a definition at byte {at} of its chunk is not JSON") from error
        if isinstance(definition, dict):
            yield definition
        at += size


def _resolved(
    path: str, definitions: list[dict[str, Any]], blocks: list[tuple[int, NDArray[np.int64]]], dropped: int
) -> ProcessTrace:
    names, tracks, threads = {0: Name("")}, {0: Name("")}, {}
    process: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    offsets: list[Any] = []
    profiles: list[Any] = []
    for definition in definitions:
        match definition:
            case {"name": int(number), "definition": {"name": str(), "category": str(), "args": dict()} as meaning}:
                names[number] = Name(**meaning)
            case {"track": int(number), "definition": {"name": str(), "args": dict()} as meaning}:
                tracks[number] = Name(**meaning)
            case {"thread": int(number), "name": str(name)}:
                threads[number] = name
            case {"process": dict(about)}:
                process |= about
            case {"clock_offsets": list(measurements)}:  # several measurements
                offsets += measurements
            case {"profile": where}:  # of each program
                profiles.append(where)
            case _:
                facts |= definition
    if offsets:
        facts.setdefault("clock_offsets", offsets)
    if profiles:
        facts["profiles"] = profiles
    _check_facts(path, process, facts)
    sequences: dict[int, SequenceSpans] = {}
    parts = [_records(thread, words, names, sequences) for thread, words in blocks]
    records = np.concatenate(parts) if parts else np.zeros(0, RECORDS)
    records = records[np.argsort(records["begin"], kind="stable")]
    for table, used in ((names, records["name"]), (tracks, records["track"])):
        for number in np.unique(used).tolist():
            table.setdefault(number, _UNDEFINED)  # beyond the limit, or too long
    return ProcessTrace(path, process, facts, threads, names, tracks, records, dropped)


def _check_facts(path: str, process: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Raise ArgumentError if a fact that identifies the process has the wrong type."""
    clock, environment = process.get("clock", {}), process.get("environment", {})
    offsets = facts.get("clock_offsets", [])
    keys = (NAMES["replica_index_offset"], RESTART_COUNT)
    numbers = [environment.get(key, "0") for key in keys] if isinstance(environment, dict) else [None]
    network = facts.get(NETWORK)
    right = {
        **{key: type(process.get(key, 0)) is int for key in ("pid", "parent")},
        **{key: isinstance(process.get(key, ""), str) for key in ("host", "boot", "role")},
        "clock": isinstance(clock, dict) and all(_is_time(value) for value in clock.values()),
        "environment": all(isinstance(number, str) and number.isdecimal() and len(number) < 10 for number in numbers),
        "clock_offsets": isinstance(offsets, list)
        and all(isinstance(offset, dict) and all(map(_is_time, map(offset.get, _OFFSET))) for offset in offsets),
        PROFILE: all(isinstance(profile, dict) and _is_profile(**profile) for profile in facts.get("profiles", [])),
        WEIGHTS: isinstance(facts.get(WEIGHTS, ""), str),
        NETWORK: network is None or (isinstance(network, dict) and _is_network(**network)),
    }
    for what, good in right.items():
        if not good:
            raise ArgumentError(f"{path}: is damaged: its {what} has the wrong form; record it again")


def _is_profile(path: object = None, sha256: object = None, **_: object) -> bool:
    return isinstance(path, str) and os.path.isabs(path) and isinstance(sha256, str)


def _is_network(interface: object = None, gigabytes_per_second: object = None, **_: object) -> bool:
    rate = gigabytes_per_second
    return isinstance(interface, str) and (rate is None or (type(rate) is float and 0 < rate < 1e9))


def _is_time(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 62


def _records(
    thread: int, words: NDArray[np.int64], names: Mapping[int, Name], sequences: dict[int, SequenceSpans]
) -> NDArray[Any]:
    """The records of a chunk, with sequences as single spans."""
    rows = words[: len(words) // RECORD_WORDS * RECORD_WORDS].reshape(-1, RECORD_WORDS)
    kinds = rows[:, KEY] >> 48
    plain = (kinds >= Kind.SPAN) & (kinds < Kind.SEQUENCE) & (rows[:, BEGIN] != 0)  # recorded
    rounds: dict[int, list[int]] = {}
    free = 0
    for start in np.nonzero(kinds == Kind.SEQUENCE)[0].tolist():
        if start < free:  # a time stamp that only looks like the key of a sequence
            continue
        free = start + 1 + -(-(int(rows[start, VALUE]) & 0xFFFFFFFF) // RECORD_WORDS)
        plain[start:free] = False
        if rows[start, BEGIN]:  # else the record was only prepared
            rounds.setdefault(int(rows[start, KEY]), []).append(start)
    parts = [_columns(thread, rows[plain])]
    for key, starts in rounds.items():
        number = key & 0xFFFFFFFF
        if number not in sequences:
            sequences[number] = SequenceSpans.of(names.get(number, Name("")).args)
        spans = sequences[number].spans(rows, np.array(starts))
        spans["track"], spans["thread"] = key >> 32 & 0xFFFF, thread
        parts.append(spans)
    return np.concatenate(parts)


def _columns(thread: int, rows: NDArray[np.int64]) -> NDArray[Any]:
    out = np.zeros(len(rows), RECORDS)
    out["begin"], out["end"], out["value"] = rows[:, BEGIN], rows[:, END], rows[:, VALUE]
    out["name"], out["track"], out["kind"] = (
        rows[:, KEY] & 0xFFFFFFFF,
        rows[:, KEY] >> 32 & 0xFFFF,
        rows[:, KEY] >> 48,
    )
    out["thread"] = thread
    return out
