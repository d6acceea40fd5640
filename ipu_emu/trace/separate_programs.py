"""Separate programs: detects whether the traces of a folder are of several programs or jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ipu_emu.trace.run import Process, Run
from popdist_py.environment import JOB


@dataclass
class _Program:
    """Processes that belong together: their command line, their time, and their numbers on their hosts."""

    arguments: object
    begin: int
    end: int
    pids: set[tuple[str, Any]] = field(default_factory=set)

    def has(self, process: Process, begin: int, end: int) -> bool:
        """Whether a process that began later belongs to this program: as its child, or as another instance of it."""
        about = process.trace.process
        if (process.host, about.get("parent")) in self.pids:
            return True
        return begin <= self.end and (end <= self.end or about.get("arguments") == self.arguments)


def notes_on(run: Run) -> list[str]:
    """A note if the numbers of a run are of several programs."""
    programs = _count(run)
    if programs < 2:
        return []
    return [
        f"{run.folder} has the traces of {programs} programs or jobs, and the numbers are of all of them; give each "
        "run a folder of its own"
    ]


def _count(run: Run) -> int:
    """The number of jobs of a launcher, and of programs without one, in a run."""
    jobs: set[object] = set()
    programs: list[_Program] = []
    alone = []
    for process in run.processes:
        about, records = process.trace.process, process.records
        job = about.get("environment", {}).get(JOB)
        if job:
            jobs.add(str(job))
        elif len(records) and not about.get("role"):
            alone.append((int(records["begin"].min()), int(records["end"].max()), process))
    for begin, end, process in sorted(alone, key=lambda entry: entry[:2]):
        mine = next((program for program in programs if program.has(process, begin, end)), None)
        if mine is None:
            mine = _Program(process.trace.process.get("arguments"), begin, end)
            programs.append(mine)
        mine.end = max(mine.end, end)
        mine.pids.add((process.host, process.trace.process.get("pid")))
    return len(jobs) + len(programs)
