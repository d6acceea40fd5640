"""Program profiles: modelled time and memory of a run's programs, read from files next to traces and executables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ipu_emu.errors import ArgumentError
from popdist_py.files.bounded_read import read_file
from popdist_py.trace.records import PROFILE_SUFFIX, VERSION

_LONGEST = 1 << 28
#: The phase of programs that copy weights to the host.
CHECKPOINTING = "checkpointing"
#: The upper bound of all numbers of a profile.
_LARGEST = 1e30


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_index(value: object) -> bool:
    return type(value) is int and -1 <= value < _LARGEST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_amounts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_amount, value.values()))


#: The fields of a profile in reports: a condition, an object's fields, [all elements], or (elements of a list).
_LAYOUT: Mapping[str, Any] = {
    "name": _is_text,
    "phase": _is_text,
    "modelled_seconds": _is_amount,
    "modelled_cycles": _is_amount,
    "modelled_seconds_by_category": _are_amounts,
    "replicas": _is_count,
    "ipus_per_replica": _is_count,
    "tiles_per_ipu": _is_count,
    "bytes_per_ipu": _is_count,
    "listing": _is_text,
    "instructions": [
        {
            "name": _is_text,
            "output": _is_text,
            "text": _is_text,
            "times_per_step": _is_count,
            "modelled_seconds": _is_amount,
            "modelled_exchange_seconds": _is_amount,
            "modelled_sync_seconds": _is_amount,
            "modelled_cycles": _is_amount,
            "flops": _is_amount,
            "bytes": _is_amount,
        }
    ],
    "memory": [
        {
            "ipu": _is_count,
            "bytes": _is_amount,
            "bytes_by_use": _are_amounts,
            "live_bytes": [_is_amount],
            "by_op": [
                {
                    "name": _is_text,
                    "output": _is_text,
                    "always_live_bytes": _is_amount,
                    "not_always_live_bytes": _is_amount,
                    "bytes_at_peak": _is_amount,
                }
            ],
            "always_live": [{"tensor": _is_text, "role": _is_text, "bytes": _is_amount}],
            "not_always_live": [{"tensor": _is_text, "bytes": _is_amount, "first": _is_index, "last": _is_index}],
        }
    ],
    "stashes": [
        {"tensor": _is_text, "ipu": _is_index, "kind": _is_text, "micro_batches": _is_count, "bytes": _is_amount}
    ],
}
#: The fields of the profile of a program that copies weights to the host.
_COPIES: Mapping[str, Any] = {
    "name": _is_text,
    "modelled_seconds": _is_amount,
    "bytes": _is_amount,
    "copies": [
        {
            "tensor": _is_text,
            "role": _is_text,
            "replica": _is_count,
            "ipu": _is_count,
            "memory": _is_text,
            "bytes": _is_amount,
            "modelled_seconds": _is_amount,
            "modelled_sync_seconds": _is_amount,
        }
    ],
}
_PIPELINE: Mapping[str, Any] = {
    "seconds": _is_amount,
    "efficiency": _is_amount,
    "spans": [(_is_index, _is_amount, _is_amount, _is_text, _is_text)],
}


@dataclass(frozen=True)
class Profiles:
    """The profiles of programs, those of copies of weights, and a message for each invalid file."""

    programs: Sequence[Mapping[str, Any]]
    copies: Sequence[Mapping[str, Any]]
    damaged: Sequence[str]


def read_profiles(folder: str | os.PathLike[str], checksums: Mapping[str, str] | None = None) -> Profiles:
    """All profiles of a folder, and those beside executables if they have these ``checksums``."""
    profiles: dict[str, Mapping[str, Any]] = {}
    damaged = []
    own: dict[str, str | None] = {str(path): None for path in sorted(Path(folder).glob(f"*{PROFILE_SUFFIX}"))}
    for path, checksum in (own | dict(checksums or {})).items():
        if checksum in profiles:  # it was copied into the folder
            continue
        try:
            read, profile = _read(Path(path), checksum)
            profiles.setdefault(read, profile)
        except ArgumentError as error:
            damaged.append(f"{error}; the report leaves it out")
    copies = [entry for entry in profiles.values() if entry["phase"] == CHECKPOINTING]
    return Profiles([entry for entry in profiles.values() if entry["phase"] != CHECKPOINTING], copies, damaged)


def _read(path: Path, checksum: str | None) -> tuple[str, Mapping[str, Any]]:
    """The checksum and content of a profile; raise ArgumentError if it is invalid or has another ``checksum``."""
    try:
        content = read_file(path, _LONGEST)
        data: dict[str, Any] = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ArgumentError(f"{path}: cannot be read as the profile of a program: {why}") from error
    read = sha256(content).hexdigest()
    if checksum not in (None, read):
        raise ArgumentError(f"{path}: was overwritten by another run, which uses the same executable")
    if not isinstance(data, dict):
        raise ArgumentError(f"{path}: is damaged: it is not the profile of a program")
    version = data.get("version")
    if version != VERSION:
        raise ArgumentError(
            f"{path}: this profile of a program was recorded in version {version!r:.20} of the format, but only "
            f"version {VERSION} can be read; record it again"
        )
    layout = {**_LAYOUT, "pipeline": _PIPELINE} if data.get("pipeline") is not None else _LAYOUT
    if data.get("phase") == CHECKPOINTING:
        layout = _COPIES
    for key, form in layout.items():
        if key not in data:
            raise ArgumentError(f"{path}: is damaged: this profile of a program has no {key}")
        if not _has_form(data[key], form):
            raise ArgumentError(f"{path}: is damaged: its {key} has the wrong form")
    return read, {**data, "file": str(path)}


def _has_form(value: object, form: Any) -> bool:
    """Whether ``value`` has a form as in ``_LAYOUT``."""
    if callable(form):
        return bool(form(value))
    if isinstance(form, Mapping):
        return isinstance(value, dict) and all(
            key in value and _has_form(value[key], part) for key, part in form.items()
        )
    if not isinstance(value, list):
        return False
    if isinstance(form, tuple):
        return len(value) == len(form) and all(map(_has_form, value, form))
    return all(_has_form(part, form[0]) for part in value)


def modelled_ops(profiles: Sequence[Mapping[str, Any]]) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The instructions of all profiles by name and output; the first one if several are equal."""
    instructions: dict[tuple[str, str], Mapping[str, Any]] = {}
    for profile in profiles:
        for instruction in profile["instructions"]:
            instructions.setdefault((str(instruction.get("name")), str(instruction.get("output"))), instruction)
    return instructions
