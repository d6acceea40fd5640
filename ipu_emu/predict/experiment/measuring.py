"""Measuring: runs the configurations of a plan in interleaved rounds, until their ratios are known or time is up.

    warm-up    1x1  1x2  2x2 ...      compiles, not counted
    round 1    1x1  1x2  2x2 ...
    round 2    1x1  1x2  2x2 ...      at least two; the warm-up is one of them if it took most of the time

A run ends with the program, or earlier when enough steps were recorded, so that long trainings can be measured too.
The time of a step comes from the recorder, else from the last ``step_seconds 0.0123`` or ``throughput 4,567`` (in
samples per second) that the program printed, else it is the time of the run.
"""

from __future__ import annotations

import re
import resource
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from ipu_emu.errors import ArgumentError, EmulatorError
from ipu_emu.predict.experiment.plan import Configuration, Plan
from ipu_emu.predict.experiment.step_use import StepUse, recorded_use, steps_so_far
from ipu_emu.trace.run import read_run
from popdist_py.dependent_program import dependent

#: Rounds at least, and half the relative width of the intervals of ratios at which no more are needed.
_FEWEST, _NARROW = 2, 0.02
#: A run ends early once it recorded so many steps and took its part of the time, which is looked at so often.
_STEPS, _POLL = 20, 0.5
#: Load per core from other processes above which the machine is busy.
_BUSY = 0.3
#: Seconds between the signal that ends a run and the one that kills it.
_GRACE = 10.0
_MOST_SECONDS = 1e9
_NUMBER = r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_SECONDS = re.compile(rf"step_seconds\W+?{_NUMBER}", re.IGNORECASE)
_THROUGHPUT = re.compile(rf"throughput\W+?{_NUMBER}", re.IGNORECASE)


@dataclass(frozen=True)
class Measurements:
    """The step of each configuration in every round; ``load``: per core, from others, at the start of each round."""

    plan: Plan
    uses: Mapping[Configuration, Sequence[StepUse]]
    loads: Sequence[float]
    seconds: float
    notes: Sequence[str] = ()

    @property
    def rounds(self) -> int:
        return len(self.loads)

    @property
    def warnings(self) -> list[str]:
        """The notes, and whether other processes took much of the machine at the start of a round."""
        busy = (
            f"the machine was busy: other processes used up to {max(self.loads):.0%} of its cores, which lengthens "
            "steps and widens the intervals"
        )
        return [*self.notes, *([busy] if max(self.loads) > _BUSY else [])]

    def median(self, configuration: Configuration, name: str, rounds: Sequence[int] | None = None) -> float:
        """The median of a number of the steps in some rounds, or all."""
        every = range(self.rounds) if rounds is None else rounds
        return float(np.median([self.uses[configuration][index].number(name) for index in every]))


#: Runs a command in a folder for its trace, for some seconds, and returns its step.
Execute = Callable[[Configuration, Path, float], StepUse]


def measure(plan: Plan, execute: Execute, say: Callable[[str], None] = lambda text: None) -> Measurements:
    """Measure the configurations of ``plan``; those for which memory is missing are left out, with a note."""
    begin, notes, part = time.monotonic(), list[str](), plan.seconds / (3 * len(plan.configurations))
    uses: dict[Configuration, list[StepUse]] = {}
    loads: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ipu-emu-scale-") as scratch:

        def run(configuration: Configuration, what: str) -> StepUse:
            folder = Path(scratch) / f"{what}-{configuration.name}".replace(" ", "-")
            start = time.monotonic()
            use = execute(configuration, folder, part)
            now = time.monotonic()
            say(
                f"[{now - begin:5.1f} s] {what:8} {configuration.name:10} {now - start:5.1f} s, "
                f"step {use.seconds:.4g} s"
            )
            return use

        for configuration in plan.configurations:
            if fault := _memory_fault(configuration):
                notes.append(fault)
                continue
            uses[configuration] = [run(configuration, "warm-up")]
        if time.monotonic() - begin > plan.seconds / 2:
            notes.append("the warm-up took most of the time, and counts as a round: see --seconds")
            loads.append(_load(plan))
        else:
            uses = {configuration: [] for configuration in uses}
        while not _is_enough(plan, uses, len(loads), time.monotonic() - begin):
            loads.append(_load(plan))
            for configuration, entries in uses.items():
                entries.append(run(configuration, f"round {len(loads)}"))
    return Measurements(plan, uses, loads, time.monotonic() - begin, notes)


def _is_enough(plan: Plan, uses: Mapping[Configuration, Sequence[StepUse]], rounds: int, seconds: float) -> bool:
    """Whether another round would take too long, or the 90 % intervals of the medians of all ratios are narrow."""
    if rounds < _FEWEST:
        return False
    table = np.array([[use.seconds for use in entries] for entries in uses.values()])
    ratios = table / table[0]
    widths = 1.645 * 1.25 * ratios.std(1, ddof=1) / np.sqrt(rounds) / np.median(ratios, 1)
    is_narrow = rounds > _FEWEST and widths.max() < _NARROW
    return bool(is_narrow) or seconds * (rounds + 2) / (rounds + 1) > plan.seconds


def _memory_fault(configuration: Configuration) -> str:
    """Why the memory does not suffice for so many processes like those before; "" if it does."""
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    needed, free = largest * configuration.instances, psutil.virtual_memory().available
    if needed <= free:
        return ""
    return f"{configuration.name} is left out: {needed / 2**30:.1f} GiB needed, {free / 2**30:.1f} GiB free"


def _load(plan: Plan) -> float:
    """The CPUs that all processes use now, per core; between runs, so these are others."""
    return float(psutil.cpu_percent(interval=0.2)) / 100 * (psutil.cpu_count() or 1) / plan.cores


def launched(plan: Plan, cache: Path) -> Execute:
    """Run configurations under the launcher, with executables in the folder ``cache``."""

    def execute(configuration: Configuration, folder: Path, seconds: float) -> StepUse:
        options = ["--trace", str(folder)]
        if not any("executable-cache" in word for word in plan.launcher):
            options += ["--executable-cache-path", str(cache)]
        command = plan.command(configuration, options)
        start = time.monotonic()
        output = _output(command, folder, seconds, plan.timeout)
        try:
            use = recorded_use(read_run(folder), plan.batch)
        except ArgumentError:
            use = None
        return use or printed_use(output, command) or StepUse(time.monotonic() - start, "the time of the run")

    return execute


def _output(command: list[str], folder: Path, seconds: float, timeout: float) -> str:
    """Run a command until it ends, or has recorded enough; EmulatorError with its last lines if it fails."""
    shown, start = shlex.join(command), time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        try:
            process = subprocess.Popen(dependent(command), stdout=out, stderr=err)
        except OSError as error:
            raise EmulatorError(f"{shown} cannot be started: {error.strerror}") from None
        is_over = False
        try:
            while not (is_over or _ends(process, min(_POLL, timeout))):
                elapsed = time.monotonic() - start
                if elapsed > timeout:
                    raise EmulatorError(f"{shown} ran longer than {timeout:g} s; use --timeout")
                is_over = elapsed > seconds and _recorded_steps(folder) > _STEPS
        finally:
            process.send_signal(signal.SIGTERM)  # nothing happens to one that ended
            if not _ends(process, _GRACE):
                process.kill()
                process.wait()
        out.seek(0), err.seek(0)
        said, failed = out.read(), err.read()
    if process.returncode and not is_over:
        last = " | ".join((failed or said).strip().splitlines()[-3:])
        raise EmulatorError(f"{shown} ended with {process.returncode}: {last}; run it alone first")
    return said


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ends within so many seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _recorded_steps(folder: Path) -> int:
    try:
        return steps_so_far(read_run(folder))
    except (ArgumentError, OSError):
        return 0


def printed_use(output: str, command: Sequence[str]) -> StepUse | None:
    """The step of which a program printed the time, or a sample, for a throughput; None if it printed neither."""
    seconds, rates = _SECONDS.findall(output), _THROUGHPUT.findall(output)
    if not (seconds or rates):
        return None
    text = (seconds or rates)[-1]
    value = float(text.replace(",", ""))
    step = value if seconds or value <= 0 else 1 / value
    if not 0 < step < _MOST_SECONDS:
        name = "step_seconds" if seconds else "throughput"
        raise EmulatorError(
            f"{shlex.join(command)} printed {name} {text}, which is not possible; let it print a number above 0"
        )
    return StepUse(step, "a line that it printed", samples=0.0 if seconds else 1.0)
