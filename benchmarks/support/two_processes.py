"""Two processes: training steps under ``poprun-py``, and under ``torchrun`` with PyTorch."""

from __future__ import annotations

import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from time import perf_counter

from support.ending import finished

__all__ = ["MINE", "PEER", "Step", "TwoProcesses", "check_losses", "medians_of", "print_median"]

#: Runs one update and returns its loss.
Step = Callable[[], float]

#: The names of the contenders.
MINE, PEER = "poprun-py", "torchrun + DDP + gloo"


def check_losses(case: str, one: Step, other: Step, tolerance: float, *, least: float = 0.0) -> None:
    """Raise SystemExit unless both compute the same losses for a few updates.

    ``tolerance`` is relative to the loss, or to ``least`` if the loss is smaller.
    """
    for update in range(5):
        a, b = one(), other()
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

    def ended(self, name: str, timeout: float = 120) -> tuple[CompletedProcess[str], float | None]:
        """Run a contender; return the completed command, and the median milliseconds of its slower process."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        done = finished(self.commands[name], timeout=timeout, env=environment)
        found = medians_of(done.stdout)
        return done, max(found) if done.returncode == 0 and len(found) == 2 else None

    def slower_ms(self, name: str, timeout: float = 120) -> float:
        """The median milliseconds of the slower process; raise SystemExit if a process failed."""
        done, slower = self.ended(name, timeout)
        if slower is None:
            command = " ".join(self.commands[name])
            raise SystemExit(f"{Path(sys.argv[0]).name}: {command} failed:\n{done.stdout}{done.stderr}")
        return slower


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
