"""Runs: golden programs in processes of a setting, or in the instances of a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    return _outcome(names, list(_lines(ended.stdout)), ended.stderr)


def _lines(text: str) -> Iterator[Mapping[str, object]]:
    """The lines of workers, which a launcher tags."""
    for line in text.splitlines():
        _, brace, tail = line.partition('{"program"')
        if brace:
            yield json.loads(brace + tail)


def _outcome(names: Sequence[str], lines: Sequence[Mapping[str, object]], said: str) -> Outcome:
    digests: dict[str, dict[str, str]] = {}
    last = said.strip().splitlines()[-1:] or ["no output"]
    errors = dict.fromkeys(names, f"no result: {last[0]}")
    for line in lines:
        name, found = str(line["program"]), line.get("digests")
        if not isinstance(found, dict):
            errors[name] = str(line.get("error"))
        elif digests.setdefault(name, found) != found:
            errors[name] = "the instances have different digests"
        elif errors.get(name, "").startswith("no result"):
            del errors[name]
    return Outcome({name: found for name, found in digests.items() if name not in errors}, errors)
