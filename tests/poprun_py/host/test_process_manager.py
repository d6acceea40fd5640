"""Process manager: the supervisor outlives the one that started it, and does nothing to a process that adopted it."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path

import pytest

from poprun_py.host import supervisor_main
from poprun_py.host.process_manager import ProcessManager
from poprun_py.linux.event_sources import Timers
from poprun_py.wire.listener import Listener
from poprun_py.wire.variables import ADDRESS_VARIABLE, KEY_VARIABLE, PATH_VARIABLE, RANK_VARIABLE
from tests.helpers.mpi_jobs import PROGRAMS, ROOT


@pytest.fixture
def started(tmp_path):
    """``started(name)`` runs a command called ``name``, which sleeps."""
    running = []

    def start(name: str) -> subprocess.Popen[bytes]:
        (tmp_path / name).symlink_to("/bin/sleep")
        running.append(subprocess.Popen([tmp_path / name, "60"]))
        while Path(f"/proc/{running[-1].pid}/comm").read_text().strip() != name[:15]:
            continue
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["hydra_pmi_proxy", "prted", "prterun", "orted", "mpirun.openmpi", "mpiexec.hydra"])
def test_a_process_manager_that_does_not_end_is_killed(started, name):
    process = started(name)
    manager = ProcessManager(process.pid)
    assert manager.family() == [process.pid]
    assert not manager.is_ending
    manager.outlive(0.05)
    assert process.wait() == -9
    assert manager.is_ending
    assert manager.family() == []


@pytest.mark.parametrize("name", ["systemd", "tmux", "slurmstepd"])
def test_an_adopting_process_is_neither_signalled_nor_searched_for_files(started, name):
    process = started(name)
    manager = ProcessManager(process.pid)
    manager.outlive(0.0)
    assert (manager.pid, manager.family(), manager.is_ending) == (0, [], False)
    assert process.poll() is None
    assert ProcessManager(1).pid == 0


def test_slurm_s_own_step_is_the_manager_of_what_srun_starts(started):
    assert ProcessManager(started("slurmstepd").pid, slurm=True).is_alive


def test_a_supervisor_whose_manager_died_at_its_start_ends_and_signals_no_other():
    """The launcher refuses it, as it does if the job has ended."""
    selector, timers, hellos = selectors.DefaultSelector(), Timers(), list[object]()
    listener = Listener(selector, timers, accept=lambda hello, _: bool(hellos.append(hello)), log=lambda _: None)
    variables = {ADDRESS_VARIABLE: listener.address, KEY_VARIABLE: listener.key.hex(), RANK_VARIABLE: "RANK"}
    variables |= {"RANK": "0", PATH_VARIABLE: os.pathsep.join(map(str, (ROOT, *sys.path)))}
    argv = [
        sys.executable,
        str(PROGRAMS / "poprun_py/host/adopting_init.py"),
        sys.executable,
        "-I",
        "-S",
        supervisor_main.__file__,
    ]
    with subprocess.Popen(argv, env=os.environ | variables, stdout=subprocess.PIPE) as adopter:
        assert adopter.stdout.readline() == b"adopted\n"
        while not hellos:
            for key, _ in selector.select(1.0):
                key.data()
        listener.close()
        assert adopter.wait(timeout=100) == 0
