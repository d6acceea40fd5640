"""Catalogue: all golden programs by name, and the file of their digests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from tests.golden.program import Program
from tests.golden.programs import architectures, popart_models, tensorflow_models, torch_modules

__all__ = ["DIGESTS", "PROGRAMS", "chosen", "golden_digests", "write_digests"]

#: Every program; those with the same needs follow each other.
PROGRAMS: dict[str, Program] = {
    **architectures.PROGRAMS,
    **popart_models.PROGRAMS,
    **torch_modules.PROGRAMS,
    **tensorflow_models.PROGRAMS,
}

DIGESTS = Path(__file__).with_name("digests.json")


def golden_digests() -> dict[str, dict[str, str]]:
    """Read the digests of each program."""
    digests: dict[str, dict[str, str]] = json.loads(DIGESTS.read_text())
    return digests


def write_digests(digests: Mapping[str, Mapping[str, str]]) -> None:
    """Write the digests, a line for each program in the order of the catalogue."""
    lines = [f"{json.dumps(name)}: {json.dumps(digests[name])}" for name in PROGRAMS if name in digests]
    DIGESTS.write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")


def chosen(patterns: Iterable[str]) -> list[str]:
    """The names that match one of the patterns, or contain it; all without patterns."""
    wanted = list(patterns)
    return [
        name
        for name in PROGRAMS
        if not wanted or any(pattern in name or fnmatchcase(name, pattern) for pattern in wanted)
    ]
