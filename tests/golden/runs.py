"""Runs: golden programs in processes of a setting, or in the instances of a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden.catalogue import PROGRAMS
from tests.golden.settings import Setting

__all__ = ["Outcome", "parts_of", "run_part"]

ROOT = Path(__file__).parents[2]
#: Seconds that a process has, most of them to compile kernels for a processor for the first time.
_PATIENCE = 1200.0


@dataclass(frozen=True)
class Outcome:
    """The digests of programs under a setting, and the errors of those that failed."""

    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)


def parts_of(setting: Setting, names: Iterable[str]) -> list[list[str]]:
    """The programs that this host can run under a setting, those with the same needs together."""
    parts: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        program = PROGRAMS[name]
        if not program.missing and (program.spread or not setting.instances):
            parts.setdefault(program.needs, []).append(name)
    return list(parts.values())


def run_part(setting: Setting, names: Sequence[str], extra: Mapping[str, str] | None = None) -> Outcome:
    """Run programs under a setting; instances of a job must agree."""
    command = [sys.executable, "-m", "tests.golden.worker", *names]
    if setting.instances:
        job = ["-m", "poprun_py", "--num-instances", str(setting.instances), "--num-replicas", "4"]
        command = [sys.executable, *job, "--process-placement", "disabled", *command]
    environment = setting.environment | (extra or {})
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(errors=dict.fromkeys(names, f"not over after {_PATIENCE:g} s"))
    return _outcome(names, setting.instances or 1, list(_lines(ended.stdout)), ended)


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    """The lines of workers, which a launcher tags."""
    for line in text.splitlines():
        _, brace, tail = line.partition('{"program"')
        if brace:
            yield json.loads(brace + tail)


def _outcome(
    names: Sequence[str], workers: int, lines: Sequence[Mapping[str, Any]], ended: subprocess.CompletedProcess[str]
) -> Outcome:
    """What the lines say of each program: one of each worker, which must agree and end without an error."""
    last = next(reversed(ended.stderr.strip().splitlines()), "no output")
    digests: dict[str, Mapping[str, str]] = {}
    errors: dict[str, str] = {}
    for name in names:
        own = [line for line in lines if line["program"] == name]
        failures = [str(line["error"]) for line in own if "error" in line]
        if failures:
            errors[name] = failures[0]
        elif len(own) != workers:
            errors[name] = f"{len(own)} of {workers} results: {last}"
        elif ended.returncode:
            errors[name] = f"exit code {ended.returncode}: {last}"
        elif any(line["digests"] != own[0]["digests"] for line in own):
            errors[name] = "the instances have different digests"
        else:
            digests[name] = own[0]["digests"]
    return Outcome(digests, errors)
