"""Outcome: checks that a disturbed job ends with the right result or a clear error, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.patience import Patience
from tests.hostile.jobs.leftovers import Leftovers, commands

__all__ = ["INSTANCES", "ROUNDS", "SUMS", "RunningJob"]

BIN = Path(sys.executable).parent

#: A program that computes, and prints "right" if the result is right.
SUMS = str(PROGRAMS / "poprun_py/sums.py")

INSTANCES, ROUNDS = 2, 100

#: Seconds within which a job ends; undisturbed it takes about two.
PATIENCE = 90.0


@dataclass
class RunningJob:
    """``poprun-py OPTIONS python sums.py ROUNDS``, started by ``prefix`` if given."""

    mpi: str
    options: Sequence[str] = ()
    prefix: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    rounds: int = ROUNDS
    cwd: str = "/"
    bare: bool = False  # nothing in the environment but PATH and ``environ``

    def __post_init__(self) -> None:
        self.left = Leftovers()
        launcher = [str(BIN / "poprun-py"), "--mpi", self.mpi, "--num-instances", str(INSTANCES)]
        self.process = subprocess.Popen(
            [*self.prefix, *launcher, *self.options, sys.executable, SUMS, str(self.rounds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**({"PATH": os.environ["PATH"]} if self.bare else os.environ), **self.environ},
            cwd=self.cwd,
        )

    def faults(self, *, must_succeed: bool = False, sweep: bool = False) -> list[str]:
        """Wait for its end; return all faults. Files of a killed launcher are removed by the next one."""
        hung = []
        try:
            out, err = self._ended(Patience(PATIENCE))
        except subprocess.TimeoutExpired:
            hung = [f"not over after {PATIENCE:g} s"]
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
            self.process.kill()
            out, err = self.process.communicate()
        code, said = self.process.returncode, err.decode(errors="replace")
        right = out.count(b"right\n")
        texts = [*hung, *self.left.processes(within=10)]
        if code == 0 and right != INSTANCES:
            texts.append(f"code 0, and {right} of {INSTANCES} results")
        if code and must_succeed:
            texts.append(f"code {code}")
        if code > 0 and not re.search("^poprun-py: ", said, re.MULTILINE):
            texts.append(f"code {code} without a message")
        if re.search("^Traceback", said, re.MULTILINE):
            texts.append("a traceback of the launcher")
        if code < 0 or sweep:
            subprocess.run([str(BIN / "poprun-py"), "--mpi", self.mpi, "true"], cwd="/", check=False)
        texts += self.left.files()
        if texts:
            texts.append(f"code {code}; stdout: {out[-500:]!r}; stderr:\n{said[-3000:]}")
        return texts

    def _ended(self, patience: Patience) -> tuple[bytes, bytes]:
        while True:
            try:
                return self.process.communicate(timeout=0.02)
            except subprocess.TimeoutExpired:
                if patience.is_over:
                    raise

    def wait_until_it_runs(self, names: Sequence[str] = ("sums.py",), within: float = 10.0) -> None:
        """Return once the programs run, or the job has ended."""
        end = time.monotonic() + within
        while time.monotonic() < end and self.process.poll() is None:
            if sum(all(name in words for name in names) for words in commands().values()) > INSTANCES:
                return
            time.sleep(0.02)
