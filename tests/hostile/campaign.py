"""Campaign: divides time and workers between kinds, and counts trials and failures."""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.hostile.kind import Kind
from tests.hostile.worker import Worker

__all__ = ["Campaign", "Count", "Turn", "quick_turns"]

#: Seconds that a worker stays with one kind, and seeds that are reserved for it.
_TURN, _SEEDS = 15.0, 100_000


#: Seconds of one worker in all turns of a quick run, and in the longest of them.
_QUICK, _LONGEST = 360.0, 30.0


@dataclass(frozen=True)
class Turn:
    """``seconds`` of one kind; ``number`` counts the turns of the kind from 1."""

    kind: Kind
    number: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.kind.name}.{self.number}"


def quick_turns(kinds: Sequence[Kind]) -> list[Turn]:
    """A quick run of all ``kinds``: each gets its share, in turns that are about equally long."""
    shares, turns = sum(kind.share for kind in kinds), list[Turn]()
    for kind in kinds:
        seconds = _QUICK * kind.share / shares
        count = math.ceil(seconds / _LONGEST)
        turns += [Turn(kind, number, seconds / count) for number in range(1, count + 1)]
    return turns


@dataclass
class Count:
    """The results of one kind so far."""

    trials: int = 0
    failures: int = 0
    skipped: str = ""
    seconds: float = 0.0  # of all workers
    turns: int = 0


@dataclass
class Campaign:
    """``say`` gets a text for each failure and each skipped kind; ``progress`` is called about every second."""

    kinds: Sequence[Kind]
    seed: int
    say: Callable[[str], None]
    progress: Callable[[dict[str, Count]], None] = lambda counts: None
    counts: dict[str, Count] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = {kind.name: Count() for kind in self.kinds}
        for kind in self.kinds:
            kind.load()

    def run(self, seconds: float, workers: int) -> None:
        """Run trials for ``seconds``, each kind at least once; the last trials may take longer."""
        end, running = time.monotonic() + seconds, list[Worker]()
        try:
            while (left := end - time.monotonic()) > 0 or running or self._untried():
                while len(running) < workers and (kind := self._next(running, left)):
                    running.append(self._started(kind, min(_TURN, max(left, 0.0))))
                running = self._heard(running)
                self.progress(self.counts)
        finally:
            for worker in running:
                worker.kill()

    def take(self, turns: Sequence[Turn], workers: int) -> None:
        """Run these turns, at least one trial each."""
        waiting, running = deque(turns), list[Worker]()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    turn = waiting.popleft()
                    running.append(self._started(turn.kind, turn.seconds, turn=turn.number - 1))
                running = self._heard(running)
                self.progress(self.counts)
        finally:
            for worker in running:
                worker.kill()

    def repeat(self, kind: Kind, trials: int) -> None:
        """Run ``trials`` trials of one kind, one after the other."""
        running = [self._started(kind, 1e9, trials)]
        while running:
            running = self._heard(running)
            self.progress(self.counts)

    def _untried(self) -> list[Kind]:
        """Kinds that have had no turn."""
        return [kind for kind in self.kinds if not self.counts[kind.name].turns]

    def _next(self, running: Sequence[Worker], left: float) -> Kind | None:
        """The kind that has received the smallest fraction of its share."""
        able = [kind for kind in self.kinds if not self.counts[kind.name].skipped]
        able = able if left > 0 else self._untried()
        now = time.monotonic()

        def had(kind: Kind) -> float:
            pending = sum(max(now - worker.started, 1.0) for worker in running if worker.kind is kind)
            return (self.counts[kind.name].seconds + pending) / kind.share

        return min(able, key=had, default=None)

    def _started(self, kind: Kind, seconds: float, trials: int | None = None, turn: int | None = None) -> Worker:
        """Start the kind's next turn, or the one with this number; each has seeds of its own."""
        count = self.counts[kind.name]
        number = count.turns if turn is None else turn
        worker = Worker(kind, self.seed + number * _SEEDS, seconds, trials)
        count.turns += 1
        worker.start()
        return worker

    def _heard(self, running: list[Worker]) -> list[Worker]:
        """Wait a second for reports; the workers that still run."""
        ready = select.select(running, [], [], 1.0)[0] if running else []
        ended = []
        for worker in ready:
            for report in worker.reports():
                self._note(worker, report)
                if "exit" in report:
                    ended.append(worker)
        for worker in running:
            if worker not in ended and worker.hangs:
                self._failed(worker.kind, worker.running, f"not over after {worker.kind.limit:g} s")
                worker.running = None
                worker.kill()
                worker.forgive()
        return [worker for worker in running if worker not in ended]

    def _note(self, worker: Worker, report: dict[str, object]) -> None:
        count, kind = self.counts[worker.kind.name], worker.kind
        if "end" in report:
            count.trials += 1
            if faults := report["faults"]:
                count.failures += 1
                self._say(kind, report["end"], faults)
        elif "skipped" in report:
            count.skipped = str(report["skipped"])
            self.say(f"{kind.name}: skipped, {count.skipped}")
        elif "broken" in report:
            self._failed(kind, worker.running, str(report["broken"]))
            worker.running = None
        elif "exit" in report:
            count.seconds += time.monotonic() - worker.started
            if worker.running is not None:
                self._failed(kind, worker.running, f"its process ended with code {report['exit']}")

    def _failed(self, kind: Kind, seed: object, fault: str) -> None:
        count = self.counts[kind.name]
        count.trials, count.failures = count.trials + 1, count.failures + 1
        self._say(kind, seed, [fault])

    def _say(self, kind: Kind, seed: object, faults: object) -> None:
        assert isinstance(faults, list)
        lines = "".join(f"\n    {line}" for fault in faults for line in str(fault).splitlines())
        self.say(
            f"{kind.name} FAILED; repeat it with: scripts/hostile --only {kind.name} --seed {seed} --trials 1{lines}"
        )
