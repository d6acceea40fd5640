"""Program runs: a program run with real, generated and synthetic data on several numbers of instances."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import popdist_py
from gcl.drawing.units import counted
from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.data.data_modes import MODE_VARIABLE, DataMode
from ipu_emu.hostio.probe.probe import REPORTS_VARIABLE, STEPS_VARIABLE, FeedMeasurement, measurement_in
from popdist_py.dependent_program import dependent
from popdist_py.files.bounded_read import read_file

_LAST_LINES = 15
_MOST_REPORT_BYTES = 1 << 16


@dataclass(frozen=True)
class MeasuredProgram:
    """The command line of a Python program, and the settings of its runs; ``timeout`` in seconds."""

    command: tuple[str, ...]
    replicas_per_instance: int
    steps: int
    timeout: float


@dataclass(frozen=True)
class ProgramRun:
    """The result of one run, for the whole job unless a field is named per instance; wall time."""

    mode: str
    instances: int
    samples_per_second: float
    gigabytes_per_second: float
    waiting: float  # share of the time that the instance with the slowest feed waits for data
    cpus_per_instance: float
    memory_bytes_per_instance: float
    workers: int
    steps: int = 0  # timed steps


def counts_of(text: str) -> list[int]:
    """Return the numbers in ``1,2,4``; for '' powers of two up to the instances of this job, or the CPUs."""
    if not text:
        limit = popdist_py.getNumInstances() if popdist_py.isPopdistEnvSet() else len(os.sched_getaffinity(0))
        return [1 << power for power in range(limit.bit_length())]
    words = text.split(",")
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise EmulatorError(f"--instances {text}: not a list of positive numbers; use for example 1,2,4")
    return sorted({int(word) for word in words})


def measure(program: MeasuredProgram, counts: list[int]) -> Iterator[ProgramRun]:
    """Run the program in each data mode, for each number of instances."""
    for instances in counts:
        for mode in DataMode:
            with tempfile.TemporaryDirectory(prefix="ipu-emu-hostio-") as folder:
                end = _run(program, instances, mode, Path(folder))
                yield job_result(reports(Path(folder), program, end, instances, mode))


def _run(program: MeasuredProgram, instances: int, mode: DataMode, folder: Path) -> subprocess.CompletedProcess[str]:
    launcher = Path(sys.executable).with_name("poprun-py")
    replicas = instances * program.replicas_per_instance
    command = [str(launcher), "--num-instances", str(instances), "--num-replicas", str(replicas)]
    command += [sys.executable, "-m", "ipu_emu.compat"]
    environment = os.environ | {
        MODE_VARIABLE: mode.value,
        REPORTS_VARIABLE: str(folder),
        STEPS_VARIABLE: str(program.steps),
    }
    try:
        return subprocess.run(
            dependent([*command, *program.command]),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=program.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EmulatorError(
            f"{program.command[0]} with {mode.value} data on {counted(instances, 'instance')} took more than "
            f"{program.timeout:g} s; use fewer --steps, or a longer --timeout"
        ) from None
    except FileNotFoundError:
        raise EmulatorError(f"{launcher} is missing; install poprun-py into this environment") from None


def reports(
    folder: Path, program: MeasuredProgram, end: subprocess.CompletedProcess[str], instances: int, mode: DataMode
) -> list[FeedMeasurement]:
    """Return the longest report of each instance. A program that fails after all its timed steps is accepted."""
    longest: dict[int, FeedMeasurement] = {}
    for file in folder.glob("*.json"):
        try:
            measurement = measurement_in(read_file(file, _MOST_REPORT_BYTES))
        except (OSError, ValueError) as error:
            raise EmulatorError(
                f"{program.command[0]} has left {file.name}, which is not the report "
                f"of a feed: {error}; let the program "
                f"write nothing to the folder in {REPORTS_VARIABLE}"
            ) from None
        if measurement.instance not in longest or measurement.steps > longest[measurement.instance].steps:
            longest[measurement.instance] = measurement
    fewest = min((report.steps for report in longest.values()), default=0)
    if len(longest) == instances and (end.returncode == 0 or fewest == program.steps):
        return list(longest.values())
    last = "\n".join(end.stdout.splitlines()[-_LAST_LINES:]) or "(no output)"
    if len(longest) == instances:
        raise EmulatorError(
            f"{program.command[0]} with {mode.value} data failed (exit code {end.returncode}) after {fewest} of "
            f"{program.steps} timed steps; fix it, or use fewer --steps. Its last lines:\n{last}"
        )
    raise EmulatorError(
        f"{len(longest)} of {counted(instances, 'instance')} reported a measurement with {mode.value} data (exit "
        f"code {end.returncode}). The program must run more than 3 steps of a session or of an ipu_emu.hostio.Feed. "
        f"Its last lines:\n{last}"
    )


def job_result(reports: list[FeedMeasurement]) -> ProgramRun:
    """Return the result of the job; instances run in lockstep, so the slowest one's time counts."""
    seconds = max(report.seconds for report in reports)

    def mean(values: list[Any]) -> float:
        return float(sum(values)) / len(values)

    return ProgramRun(
        mode=reports[0].mode,
        instances=len(reports),
        samples_per_second=sum(report.samples for report in reports) / seconds,
        gigabytes_per_second=sum(report.bytes for report in reports) / seconds / 1e9,
        waiting=max(report.waited_seconds / report.seconds for report in reports),
        cpus_per_instance=mean([report.cpu_seconds / report.seconds for report in reports]),
        memory_bytes_per_instance=mean([report.memory_bytes for report in reports]),
        workers=reports[0].workers,
        steps=min(report.steps for report in reports),
    )
