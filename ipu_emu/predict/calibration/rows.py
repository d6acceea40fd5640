"""Rows: measured steps of known jobs, as a CSV file with a column for each field of a job and one for the time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.predict.job import Job, smallest_pod
from popdist_py.files.bounded_read import read_file

_MOST_BYTES = 16 << 20
#: The shortest step, in seconds, that counts as measured.
_LEAST_SECONDS, _MOST_SECONDS = 1e-9, 1e9


@dataclass(frozen=True)
class Row:
    """``seconds``: the measured time of a step of ``job``. Rows of one ``configuration`` are copies of each other."""

    name: str
    job: Job
    seconds: float

    @property
    def configuration(self) -> tuple[Any, ...]:
        """The key that rows of the same configuration share."""
        job = self.job
        return (job.model, job.release, job.system.name, job.replicas, job.ipus, job.batch, job.accumulation)


def rows_text(path: Path, option: str = "") -> str:
    """The text of a CSV file, given with ``option``; raise EmulatorError if it is too long or not text."""
    try:
        text = read_file(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise EmulatorError(f"{option}{path} cannot be read: {why}; give a CSV file, as for calibrate") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _table(text: str, name: str) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the lines of a CSV file."""
    table = csv.DictReader(io.StringIO(text))
    try:
        return list(table.fieldnames or ()), list(table)
    except csv.Error as error:
        raise EmulatorError(f"{name}, after line {table.line_num}: not CSV: {error}; correct the file") from None


def layer_counts(text: str) -> tuple[tuple[int, int], ...]:
    """``3,7,7,7``, or ``1/1,3/3,4/3`` for parts of layers; raise EmulatorError for anything else."""
    try:
        parts = [part.split("/") for part in text.split(",")]
        counts = tuple((_whole(part[0]), _whole(part[-1])) for part in parts)
        if any(len(part) > 2 for part in parts) or min(map(min, counts)) < 0:
            raise ValueError
    except ValueError:
        raise EmulatorError(
            f"layers {text} are not valid; write a number for each IPU, such as 3,7,7,7, or 1/1,3/3,4/3 for "
            "attention and feed-forward parts"
        ) from None
    return counts


def _whole(text: str) -> int:
    _check_digits(text)
    return int(text)


def _real(text: str) -> float:
    _check_digits(text)
    return float(text)


def _check_digits(text: str) -> None:
    """Raise an error for numbers that only Python accepts: digits of other scripts, and ``1_000``."""
    if not text.isascii() or "_" in text:
        raise ValueError


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError
    return text.lower() in ("yes", "true", "1")


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(
        ("replicas", "ipus", "batch", "accumulation", "bn_span", "hosts", "instances", "embedding_ipu"), _whole
    ),
    **dict.fromkeys(("length", "vocabulary", "masked", "size"), _whole),
    **dict.fromkeys(("packing", "host_rate"), _real),
    **dict.fromkeys(("model", "optimiser", "dtype", "schedule", "release", "input_dtype", "stash_dtype"), str),
    **dict.fromkeys(("recompute", "overlap_io", "merge_collectives", "training"), _yes),
    **dict.fromkeys(("shared", "off_chip"), lambda text: tuple(text.replace("+", " ").replace(";", " ").split())),
    "layers": layer_counts,
}
_MEASURED = ("step_seconds", "samples_per_second")
_NEEDED = ("model", "replicas", "batch", "accumulation")
_OTHERS = ("name", "system", *_MEASURED)


def read_rows(text: str, name: str) -> list[Row]:
    """The rows of a CSV file called ``name``; raise EmulatorError naming the line and the column of a mistake."""
    names, lines = _table(text, name)
    columns = [column.strip() for column in names]
    twice = [column for column in dict.fromkeys(columns) if columns.count(column) > 1]
    if twice:
        raise EmulatorError(f"{name} has the column {twice[0]} {columns.count(twice[0])} times; keep one")
    unknown = [column for column in columns if column not in _READ and column not in _OTHERS]
    missing = [column for column in _NEEDED if column not in columns]
    if unknown or missing or not set(_MEASURED) & set(columns):
        said = f"has no column {missing[0]}" if missing else f"has an unknown column {unknown[0]}" if unknown else ""
        raise EmulatorError(
            f"{name} {said or 'has no measurement'}; it needs {', '.join(_NEEDED)} and {' or '.join(_MEASURED)}, "
            f"and may have {', '.join(column for column in ('name', 'system', *_READ) if column not in _NEEDED)}"
        )
    jobs: dict[tuple[str, ...], Job] = {}
    rows = [_row(line, f"{name}, line {number}", jobs) for number, line in enumerate(lines, 2)]
    if not rows:
        raise EmulatorError(f"{name} has no rows; write a line for each measured configuration")
    return rows


def _row(line: dict[str, str], where: str, jobs: dict[tuple[str, ...], Job]) -> Row:
    """Return the row of a line; ``jobs`` caches the jobs of earlier lines by their cells."""
    cells = {column.strip(): (cell or "").strip() for column, cell in line.items() if isinstance(cell, str)}
    if None in line:
        raise EmulatorError(
            f'{where}: more cells than the first line has columns; quote cells that have commas: "3,7,7,7"'
        )
    key = tuple(cells.get(column, "") for column in ("system", *_READ))
    job = jobs.get(key) or jobs.setdefault(key, _job(cells, where))
    return Row(cells.get("name") or job.title, job, _seconds(cells, job, where))


def _job(cells: dict[str, str], where: str) -> Job:
    fields: dict[str, Any] = {}
    for column, read in _READ.items():
        text = cells.get(column, "")
        if text:
            try:
                fields[column] = read(text)
            except (ValueError, EmulatorError) as error:
                why = f": {error}" if isinstance(error, EmulatorError) else ""
                raise EmulatorError(f"{where}: {column} '{text}' is not valid{why}") from None
    absent = [column for column in _NEEDED if column not in fields]
    if absent:
        raise EmulatorError(f"{where}: {absent[0]} is empty; give it")
    try:
        needed = max(16, fields["replicas"] * fields.get("ipus", 1))
        named = cells.get("system", "")
        system = System.named(named, "system ") if named else smallest_pod(needed, System.named("pod16"))
        job = Job(system=system, **fields)
        job.network  # noqa: B018
    except EmulatorError as error:
        raise EmulatorError(f"{where}: {error}") from None
    return job


def _seconds(cells: dict[str, str], job: Job, where: str) -> float:
    column = next((name for name in _MEASURED if cells.get(name)), None)
    if column is None:
        raise EmulatorError(f"{where}: there is no measurement; fill {' or '.join(_MEASURED)}")
    try:
        value = _real(cells[column])
    except ValueError:
        value = 0.0
    seconds = value if column == "step_seconds" else job.global_batch / value if value else 0.0
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise EmulatorError(
            f"{where}: {column} '{cells[column]}' is not valid; give a number for which a step takes "
            f"{_LEAST_SECONDS:g} to {_MOST_SECONDS:g} seconds"
        )
    return seconds
