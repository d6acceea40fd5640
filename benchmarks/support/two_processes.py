"""Two processes: training steps under ``poprun-py``, and under ``torchrun`` with PyTorch."""

from __future__ import annotations

import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from support.ending import finished
from support.rounds import Row, measured_in_turns, row_of_times

__all__ = ["Step", "TwoProcesses", "check_losses", "last_words", "medians_of", "print_median"]

#: Runs one update and returns its loss.
Step = Callable[[], float]

#: The names of the contenders.
MINE, PEER = "poprun-py", "torchrun + DDP + gloo"


def check_losses(case: str, ours: Step, other: Step, tolerance: float, *, least: float = 0.0) -> None:
    """Raise SystemExit unless both compute the same losses for a few updates.

    ``tolerance`` is relative to the loss, or to ``least`` if the loss is smaller.
    """
    for update in range(5):
        a, b = ours(), other()
        if abs(a - b) > tolerance * max(abs(b), least):
            raise SystemExit(f"{Path(sys.argv[0]).name}: {case}: losses differ in update {update}: {a} and {b}")


class TwoProcesses:
    """Two processes that run a step each, under ``poprun-py`` (MINE) or ``torchrun`` (PEER).

    The command of a process is ``program`` with ``ours`` or ``pytorch`` added; it ends with ``print_median``.
    """

    def __init__(self, program: Sequence[str], *, port: int) -> None:
        launcher = str(Path(sys.executable).with_name("poprun-py"))
        torchrun = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
        instances = ["--num-instances", "2", "--num-replicas", "2"]
        self.commands = {
            MINE: [launcher, *instances, sys.executable, *program, "ours"],
            PEER: [sys.executable, "-m", *torchrun, *program, "pytorch"],
        }

    def row(self, case: str, rounds: int, *, peer: bool = True, timeout: float = 120) -> Row:
        """Start the contenders in turns; the slower process counts."""
        names = [MINE, PEER] if peer else [MINE]
        contenders = {name: partial(self._slower_ms, name, timeout) for name in names}
        times, failed = measured_in_turns(contenders, [MINE], rounds)
        return row_of_times(case, times, *names, failed=failed)

    def _slower_ms(self, name: str, timeout: float) -> float:
        """The median milliseconds of the slower process.

        Raise SystemExit if one of ours fails, and RuntimeError if one of the peer does.
        """
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        done = finished(self.commands[name], timeout=timeout, env=environment)
        medians = medians_of(done.stdout)
        if done.returncode or len(medians) != 2:
            if name == PEER:
                raise RuntimeError(last_words(done.returncode, done.stderr))
            command = " ".join(self.commands[name])
            raise SystemExit(f"{Path(sys.argv[0]).name}: {command} failed:\n{done.stdout}{done.stderr}")
        return max(medians)


def last_words(code: int, stderr: str) -> str:
    """The exit code of a command, and the last line with letters that it wrote to stderr."""
    lines = [line.strip() for line in stderr.splitlines() if re.search(r"[a-z]", line)]
    return f"exit code {code}: {lines[-1] if lines else ''}"


def print_median(step: Callable[[], object], steps: int, *, warm_up: int) -> None:
    """Print the median of ``steps`` steps after ``warm_up`` others; all processes of a job make as many."""
    for _ in range(warm_up):
        step()
    samples = []
    for _ in range(steps):
        start = perf_counter()
        step()
        samples.append(1e3 * (perf_counter() - start))
    print(f"STEP_MS {statistics.median(samples):.6f}", flush=True)


def medians_of(output: str) -> list[float]:
    """The milliseconds that processes printed."""
    return [float(value) for value in re.findall(r"STEP_MS ([\d.]+)", output)]
