"""Program profiles: what the programs of a run need on IPUs, read from the files beside its traces."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu_emu.errors import ArgumentError
from popdist_py.bounded_read import read_file
from popdist_py.trace.records import PROFILE_SUFFIX

__all__ = ["Profiles", "modelled_ops", "read_profiles"]

_LONGEST = 1 << 28
#: Of the parts of a profile that are read, their types.
_PARTS = {"name": str, "pid": int, "instructions": list, "memory": list, "stashes": list, "listing": str}
_NUMBERS = ("modelled_seconds", "times_per_step", "flops", "bytes")


@dataclass(frozen=True)
class Profiles:
    """The profiles of a folder, and a sentence for each file that is none."""

    whole: Sequence[Mapping[str, Any]]
    damaged: Sequence[str]


def read_profiles(folder: str | os.PathLike[str]) -> Profiles:
    """All profiles of a folder."""
    whole, damaged = [], []
    for path in sorted(Path(folder).glob(f"*{PROFILE_SUFFIX}")):
        try:
            whole.append(_read(path))
        except ArgumentError as error:
            damaged.append(f"{error}; the report is without it")
    return Profiles(whole, damaged)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data: dict[str, Any] = json.loads(read_file(path, _LONGEST))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ArgumentError(f"{path}: cannot be read as the profile of a program: {why}") from error
    right = isinstance(data, dict) and all(isinstance(data.get(key), kind) for key, kind in _PARTS.items())
    right = right and isinstance(data.get("pipeline"), dict | None)
    if not right or not all(map(_is_instruction, data["instructions"])):
        raise ArgumentError(f"{path}: is damaged: it is no profile of a program")
    return data


def _is_instruction(each: object) -> bool:
    return isinstance(each, dict) and all(isinstance(each.get(key), int | float) for key in _NUMBERS)


def modelled_ops(profiles: Sequence[Mapping[str, Any]]) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The instructions of all profiles by name and output; of equal ones the first."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for profile in profiles:
        for each in profile["instructions"]:
            found.setdefault((str(each.get("name")), str(each.get("output"))), each)
    return found
