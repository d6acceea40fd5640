"""Worker: a process that runs trials of one kind for some seconds, and reports each of them through a pipe."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.isolation import isolate, unavailable
from tests.helpers.patience import Patience
from tests.hostile.kind import Kind, Unavailable

__all__ = ["Worker"]

_PR_SET_PDEATHSIG = 1


@dataclass
class Worker:
    """Trials of ``kind`` with the seeds ``first``, ``first + 1``, ...; at least one, at most ``trials``.

    The parent reads dicts from it: {"begin": seed}, {"end": seed, "faults": [...]}, {"skipped": reason}.
    """

    kind: Kind
    first: int
    seconds: float
    trials: int | None = None
    pid: int = 0
    running: int | None = None  # the seed of the trial that runs
    patience: Patience = field(init=False)  # with that trial
    started: float = field(default_factory=time.monotonic)
    _unread: bytes = b""

    def __post_init__(self) -> None:
        self.forgive()

    def forgive(self) -> None:
        """Restart the time limit of the trial."""
        self.patience = Patience(self.kind.limit, interval=1.5)  # it is checked every second

    def start(self) -> None:
        self._read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        code = 1
        try:
            os.close(self._read)
            _end_with_parent()
            code = self._work(write)
        except BaseException:
            _report(write, {"broken": traceback.format_exc()})
            code = 0
        finally:
            os._exit(code)

    def fileno(self) -> int:
        return self._read

    def reports(self) -> Iterator[dict[str, Any]]:
        """The reports that have arrived; {"exit": code} is the last, negative for a signal."""
        piece = os.read(self._read, 1 << 16)
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            report: dict[str, Any] = json.loads(line)
            yield report
            if "broken" not in report:
                self.running = report.get("begin")
                self.forgive()
        if not piece:
            os.close(self._read)
            yield {"exit": os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])}

    @property
    def hangs(self) -> bool:
        return self.patience.is_over

    def kill(self) -> None:
        """End it, and with an isolated worker all processes of its trials."""
        os.kill(self.pid, signal.SIGKILL)

    def _work(self, write: int) -> int:
        if self.kind.isolated:
            if reason := unavailable():
                _report(write, {"skipped": reason})
                return 0
            isolate()
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        try:
            with self.kind.opened() as trial:
                self._try_all(trial, write)
        except Unavailable as reason:
            _report(write, {"skipped": str(reason)})
        return 0

    def _try_all(self, trial: Any, write: int) -> None:
        end = time.monotonic() + self.seconds
        for seed in itertools.count(self.first):
            _report(write, {"begin": seed})
            try:
                faults = trial(self.kind.dice(seed))
            except Unavailable:
                raise
            except Exception:
                faults = [traceback.format_exc()]
            _report(write, {"end": seed, "faults": faults})
            if time.monotonic() > end or (self.trials and seed + 1 - self.first >= self.trials):
                return


def _end_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _report(write: int, report: dict[str, Any]) -> None:
    data = json.dumps(report).encode() + b"\n"
    while data:
        data = data[os.write(write, data) :]
