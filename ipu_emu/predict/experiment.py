"""Experiment: a program measured under the launcher with several instances and accumulations, in turns.

    round    1 x GA 1, 1 x GA 2, 1 x GA 4, 2 x GA 1, ... ; then the same again

The least time of a configuration counts, because other processes can only add time. If the machine is not idle at the
start, the result says so. t and c are fitted to the accumulations of the smallest number of instances:

    step = t GA + c                             and for N instances
    step = t GA s(N) + c                        without communication; s(N): slowdown of separate runs

Instances on one machine share caches, memory and cores, even if they never communicate. s(N) is measured with N
separate runs of the smallest number of instances at the same time, so that the prediction needs no run of N. On
several hosts each run gets its own hosts, as far as there are enough. Communication of instances is in c only if
the smallest number of them communicates too.

The program gets ``--accumulation GA``, unless its arguments have {accumulation}, {instances} or {replicas}. It prints
``step_seconds 0.0123``, or ``throughput 4,567`` samples per second; the last such line counts.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.laws import AccumulationFit, fit_accumulation, karp_flatt
from popdist_py.dependent_program import dependent

#: The highest load per core at the start of an idle machine.
_IDLE = 0.3
#: The limits of rows of ``ipu-emu calibrate``.
_MOST_SECONDS = 1e9
_HOSTS = ("--host", "-H")
_NUMBER = r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_SECONDS = re.compile(rf"step_seconds\W+?{_NUMBER}", re.IGNORECASE)
_THROUGHPUT = re.compile(rf"throughput\W+?{_NUMBER}", re.IGNORECASE)


@dataclass(frozen=True)
class Experiment:
    """A scaling experiment: command line ``program``; ``batch`` samples per micro-batch; one replica per instance."""

    program: tuple[str, ...]
    instances: tuple[int, ...]
    accumulations: tuple[int, ...]
    batch: int = 1
    rounds: int = 5
    launcher: tuple[str, ...] = ()
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if not self.program:
            raise EmulatorError("--run needs a program, such as --run train.py")
        if min((*self.instances, *self.accumulations, self.rounds, self.batch), default=0) < 1:
            raise EmulatorError("instances, accumulations, rounds and batch must be at least 1")
        if not 0 < self.timeout <= threading.TIMEOUT_MAX:
            raise EmulatorError(f"--timeout {self.timeout:g} is not possible; use a number of seconds above 0")
        ranges = next((word for word in self.launcher if "[" in word), None)
        if ranges is not None:
            raise EmulatorError(
                f"--launcher {ranges}: a range of hosts; write each host, such as --host n0,n1, because measurements "
                "take as many of them as they have instances"
            )
        if len(set(self.accumulations)) < 2:
            raise EmulatorError("--accumulations needs two numbers at least, or t and c cannot be determined")

    @property
    def configurations(self) -> list[tuple[int, int]]:
        """(instances, accumulation) of every measurement."""
        return list(product(sorted(set(self.instances)), sorted(set(self.accumulations))))

    def command(self, instances: int, accumulation: int, copy: int = 0) -> list[str]:
        """Return the command of one measurement; each ``copy`` of it runs on other hosts if there are enough."""
        names = {"accumulation": accumulation, "instances": instances, "replicas": instances}
        words, used = [], False
        for word in self.program:
            for name, value in names.items():
                used |= f"{{{name}}}" in word
                word = word.replace(f"{{{name}}}", str(value))
            words.append(word)
        if not used:
            words += ["--accumulation", str(accumulation)]
        python = [sys.executable] if words[0].endswith(".py") else []
        count = ["--num-instances", str(instances), "--num-replicas", str(instances)]
        return [sys.executable, "-m", "poprun_py", *count, *self._launcher(instances, copy), *python, *words]

    def _launcher(self, instances: int, copy: int) -> list[str]:
        """Return the launcher's options; --host gets at most as many hosts as there are instances."""
        words, before = [], ""
        for word in self.launcher:
            name, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
            if before in _HOSTS:
                words.append(_some(word, instances, copy))
            elif name in _HOSTS and sign:
                words.append(f"{name}={_some(value, instances, copy)}")
            else:
                words.append(word)
            before = word
        return words

    def run(self, execute: Callable[[list[str], float], str], *, idle: bool = True) -> Measurements:
        """Measure all rounds."""
        least: dict[tuple[int, int], float] = {}
        together: dict[int, float] = {}
        for _ in range(self.rounds):
            for configuration in self.configurations:
                command = self.command(*configuration)
                samples = self.batch * configuration[0] * configuration[1]
                seconds = measured_seconds(execute(command, self.timeout), samples, command)
                least[configuration] = min(seconds, least.get(configuration, seconds))
            for copies in self._copies:
                seconds = self._slowest(execute, copies)
                together[copies] = min(seconds, together.get(copies, seconds))
        points = tuple(Measurement(*configuration, seconds) for configuration, seconds in least.items())
        alone = least[min(self.instances), max(self.accumulations)]
        slowdowns = {min(self.instances) * copies: max(1.0, time / alone) for copies, time in together.items()}
        return Measurements(self, points, idle, slowdowns)

    @property
    def _copies(self) -> list[int]:
        """Return the number of separate runs of the fewest instances that add up to each larger number."""
        fewest = min(self.instances)
        return [n // fewest for n in sorted(set(self.instances)) if n > fewest]

    def _slowest(self, execute: Callable[[list[str], float], str], copies: int) -> float:
        """Return the seconds of a step of the slowest of several runs at the same time."""
        fewest, most = min(self.instances), max(self.accumulations)
        commands, samples = [self.command(fewest, most, copy) for copy in range(copies)], self.batch * fewest * most
        with ThreadPoolExecutor(copies) as pool:
            outputs = list(pool.map(execute, commands, [self.timeout] * copies))
        return max(
            measured_seconds(output, samples, command) for output, command in zip(outputs, commands, strict=True)
        )


def _some(hosts: str, instances: int, copy: int) -> str:
    """Return at most one of ``hosts`` per instance, starting after the hosts of earlier copies."""
    names = hosts.split(",")
    start = copy * instances % len(names)
    return ",".join([*names[start:], *names[:start]][:instances])


@dataclass(frozen=True)
class Measurement:
    """The least measured seconds of a step of one configuration."""

    instances: int
    accumulation: int
    seconds: float


@dataclass(frozen=True)
class Measurements:
    """All measurements; ``idle``: whether the machine was; ``slowdowns`` of N separate instances, by N."""

    experiment: Experiment
    points: tuple[Measurement, ...]
    idle: bool
    slowdowns: Mapping[int, float] = field(default_factory=dict)
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def fit(self, instances: int) -> AccumulationFit:
        """Fit t and c to the steps of ``instances``."""
        return fit_accumulation([(p.accumulation, p.seconds) for p in self.points if p.instances == instances])

    @property
    def fewest(self) -> int:
        return min(point.instances for point in self.points)

    def predicted(self, instances: int, accumulation: int) -> float:
        """Seconds of a step, from the measurements with the fewest instances."""
        fit = self.fit(self.fewest)
        return fit.micro_batch * accumulation * self.slowdowns.get(instances, 1.0) + fit.constant

    def throughput(self, instances: int, accumulation: int, seconds: float) -> float:
        return instances * accumulation * self.experiment.batch / seconds

    def constant_share(self, accumulation: int) -> float:
        """c / (t GA + c) with the fewest instances; 0 if noise makes c negative."""
        fit = self.fit(self.fewest)
        return min(1.0, max(0.0, fit.constant / fit.seconds(accumulation)))

    def line(self, *, strong: bool) -> list[Measurement]:
        """Return the points of a curve: of the largest accumulation; if ``strong``, of equal total micro-batches."""
        most = max(self.experiment.accumulations)
        wanted = {n: most * self.fewest / n if strong else most for n in sorted(set(self.experiment.instances))}
        return [p for p in self.points if wanted[p.instances] == p.accumulation]

    def serial_fraction(self, point: Measurement, first: Measurement) -> float | None:
        """Karp and Flatt's serial fraction of the speed-up of ``point`` over ``first``; None for the first point."""
        if point.instances == first.instances:
            return None
        rates = [self.throughput(p.instances, p.accumulation, p.seconds) for p in (first, point)]
        if point.instances % first.instances:
            return None
        return karp_flatt(rates[1] / rates[0], point.instances // first.instances)

    def rows(self) -> str:
        """Return the rows of a CSV file for ``ipu-emu calibrate``."""
        name = shlex.join(self.experiment.program)
        head = "name,model,replicas,instances,batch,accumulation,step_seconds"
        quoted = '"' + name.replace('"', '""') + '"'
        lines = [
            f"{quoted},program,{p.instances},{p.instances},{self.experiment.batch},{p.accumulation},{p.seconds:.9g}"
            for p in self.points
        ]
        return "\n".join([head, *lines]) + "\n"


def measured_seconds(output: str, samples: int, command: Sequence[str]) -> float:
    """The seconds of a step that a program printed; raise EmulatorError if it printed none."""
    seconds, rates = _SECONDS.findall(output), _THROUGHPUT.findall(output)
    numbers = seconds or rates
    if not numbers:
        raise EmulatorError(
            f"{shlex.join(command)} printed no time; let it print step_seconds and a number, or throughput and "
            "samples per second"
        )
    value = float(numbers[-1].replace(",", ""))
    step = value if seconds or value <= 0 else samples / value
    if not 0 < step < _MOST_SECONDS:
        name = "step_seconds" if seconds else "throughput"
        raise EmulatorError(
            f"{shlex.join(command)} printed {name} {numbers[-1]}, which is not possible; let it print a "
            "number above 0"
        )
    return step


def check_idle(*, force: bool, cores: int | None = None, load: float | None = None) -> bool:
    """Whether the machine is idle; raise EmulatorError if not, unless ``force``."""
    count = cores or len(os.sched_getaffinity(0))
    now = os.getloadavg()[0] if load is None else load
    if now / count <= _IDLE:
        return True
    if not force:
        raise EmulatorError(
            f"the load is {now / count:.2f} per core, and times measured on a busy machine are meaningless; "
            f"wait until it is at most {_IDLE}, or use --force, which marks the result"
        )
    return False


def launched(command: list[str], timeout: float) -> str:
    """Run a command and return its output; raise EmulatorError with its last lines if it fails."""
    try:
        done = subprocess.run(dependent(command), capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise EmulatorError(f"{shlex.join(command)} ran longer than {timeout:g} s; use --timeout") from None
    except OSError as error:
        raise EmulatorError(f"{shlex.join(command)} cannot be started: {error.strerror}") from None
    if done.returncode:
        last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise EmulatorError(f"{shlex.join(command)} ended with {done.returncode}: {last}; run it alone first")
    return done.stdout
