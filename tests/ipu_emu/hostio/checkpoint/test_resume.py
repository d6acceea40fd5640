"""Resuming: a killed job continues from its position in the data, and ends with the bits of an undisturbed one.

    python -m tests.ipu_emu.hostio.checkpoint.test_resume COUNT FOLDER

kills a job of two instances COUNT times at random moments, and lets poprun-py restart it. Some keep data of the next
step in Streaming Memory, some shard weights and states between the replicas.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.helpers import resuming_job

PROGRAM = ROOT / "tests" / "ipu_emu" / "helpers" / "resuming_job.py"
STEPS, PAUSE = 10, 0.02
FORMS: list[list[str]] = [[], ["staged"], ["sharded"]]


def run(folder: Path, after: float | None, *form: str) -> tuple[list[int], str]:
    """The steps from which the job began, and the digest of its weights; one instance is killed ``after`` seconds.

    With 0 its program is killed as soon as there is a checkpoint; it makes three and then waits for the kill.
    """
    launcher = Path(sys.executable).with_name("poprun-py")
    job = ["--num-instances", "2", "--num-replicas", "2", "--max-restarts", "2"]
    program = [sys.executable, str(PROGRAM), str(folder), str(STEPS), str(PAUSE), *form, *["held"] * (after == 0)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(launcher), *job, *program]
    starts, last = [], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line.split(">:")[-1].strip()
            if last.startswith("from step"):
                starts.append(int(last.split()[-1]))
                if after is not None and len(starts) == 1:
                    while after == 0 and not any(folder.glob("**/latest")):
                        time.sleep(0.002)
                    time.sleep(after)
                    kill_one(process.pid, workers=after > 0)
        assert process.wait(250) == 0
    return starts, last


def kill_one(launcher: int, *, workers: bool) -> None:
    """Kill the program of an instance, or with ``workers`` maybe one of its feed, which has the same command line."""
    programs = [p for p in psutil.Process(launcher).children(recursive=True) if is_program(p)]
    pids = {p.pid for p in programs}
    programs = [p for p in programs if workers or p.ppid() not in pids]
    if programs:
        random.choice(programs).kill()


def is_program(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[1:2] == [str(PROGRAM)]
    except psutil.Error:
        return False


def test_a_killed_job_resumes_with_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, digest = run(tmp_path / "killed", 0, "staged")
    names = {"NUM_TOTAL_REPLICAS": 2, "NUM_LOCAL_REPLICAS": 2, "REPLICA_INDEX_OFFSET": 0, "NUM_IPUS_PER_REPLICA": 1}
    for name, value in {**names, "UNIFORM_REPLICAS_PER_INSTANCE": 1}.items():
        monkeypatch.setenv(f"POPDIST_{name}", str(value))
    _, undisturbed = resuming_job.run(tmp_path / "undisturbed", STEPS)
    assert digest == undisturbed
    assert len(starts) == 2
    assert 0 < starts[1] < STEPS


def main() -> None:
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    _, undisturbed = run(folder / "undisturbed", None)
    starts, ends = [], {undisturbed}
    for turn in range(count):
        began, digest = run(folder / str(turn), random.uniform(0, 0.3), *random.choice(FORMS))
        starts += began[1:]
        ends.add(digest)
    print(f"{count} jobs, {len(starts)} started again, from steps {sorted(starts)}; {len(ends) - 1} other ends")


if __name__ == "__main__":
    main()
