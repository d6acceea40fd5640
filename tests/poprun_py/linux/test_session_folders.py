"""Session folders: Open MPI's folders of a job are found by the pids of its processes, those of others are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from poprun_py.linux import processes, session_folders
from poprun_py.linux.job_record import JobRecord, new_folder
from poprun_py.linux.session_folders import began_at, folders_of, folders_without_daemon
from tests.helpers.mpi_jobs import OPENMPI

#: A program that dies after Open MPI has created its folder.
DIES = "import os, mpi4py.MPI; os.kill(os.getpid(), 9)"


def test_the_session_folder_of_a_living_daemon_is_known_by_its_pid(tmp_path):
    for pid in (os.getpid(), 4194400):
        (tmp_path / f"prted.{pid}").mkdir()
    assert folders_of(os.getpid(), [str(tmp_path)]) == [str(tmp_path / f"prted.{os.getpid()}")]
    assert folders_of(4194400, [str(tmp_path)]) == []


@pytest.fixture
def family(tmp_path):
    """The folder in which Open MPI's programs without a daemon create their session folders."""
    host = os.uname().nodename.split(".")[0]
    return tmp_path / f"ompi.{host}.{os.getuid()}" / "jf.0"


@pytest.mark.openmpi
@pytest.mark.skipif(not OPENMPI.mpirun.exists(), reason="there is no .venv-openmpi here")
def test_the_folder_of_a_program_without_a_daemon_is_known_by_its_pid(tmp_path, family):
    prefix = OPENMPI.mpirun.parent.parent
    environment = {**os.environ, **OPENMPI.environ, "OPAL_PREFIX": str(prefix), "TMPDIR": str(tmp_path)}
    since = time.time()
    with subprocess.Popen(
        [sys.executable, "-c", DIES],
        env=environment | {"LD_LIBRARY_PATH": str(prefix / "lib"), "MPI4PY_MPIABI": "openmpi"},
    ) as program:
        program.wait(60)
    (folder,) = family.iterdir()
    paths = [folder / "0", folder, family, family.parent]
    assert folders_without_daemon([program.pid], "", [str(tmp_path)], since) == [f"{path}/" for path in paths]
    assert folders_without_daemon([program.pid + 1], "", [str(tmp_path)], since) == []


def test_the_folders_of_a_job_that_open_mpi_has_named_are_known_by_its_name(tmp_path, family):
    (family / "1620967425/0").mkdir(parents=True)  # as Open MPI 5.0.8 numbers that job
    (family / "1620967426").mkdir()
    folders = folders_without_daemon([], "prterun-vm-34003@1", [str(tmp_path)], 0.0)
    paths = [family / "1620967425/0", family / "1620967425", family, family.parent]
    assert folders == [f"{path}/" for path in paths]


def test_folders_that_are_older_or_not_empty_are_kept(tmp_path, family):
    (family / "1620967425/0").mkdir(parents=True)
    name, later = "prterun-vm-34003@1", time.time() + 1.0
    assert folders_without_daemon([], name, [str(tmp_path)], later) == []
    (family / "1620967425/thesis.txt").touch()
    record = JobRecord(new_folder(str(tmp_path)))
    record.add(folders_without_daemon([], name, [str(tmp_path)], 0.0))
    record.close()
    assert [path.name for path in family.rglob("*")] == ["1620967425", "thesis.txt"]


def test_two_programs_that_share_folders_leave_none(tmp_path, family):
    """The second starts after the first has created them, whichever of their supervisors lists them first."""
    name = "prterun-vm-34003@1"
    record = JobRecord(new_folder(str(tmp_path)))
    (family / "1620967425/0").mkdir(parents=True)
    first = folders_without_daemon([], name, [str(tmp_path)], 0.0)
    time.sleep(0.2)
    second, later = JobRecord(record.folder), time.time()
    (family / "1620967425/1").mkdir()
    assert len(folders_without_daemon([], name, [str(tmp_path)], later)) == 1
    folders = folders_without_daemon([], name, [str(tmp_path)], began_at(second.path, later))
    assert len(folders) == 5
    record.add(first)
    second.add([f"{family}/1620967425/1/"])
    record.close()
    second.close()
    assert list(tmp_path.iterdir()) == []
    assert began_at(second.path, later) == later


def test_the_folder_of_a_running_program_is_kept(tmp_path, family, monkeypatch):
    """Two jobs may have the same number."""
    (family / "1620967425").mkdir(parents=True)
    assert folders_without_daemon([], "prterun-vm-34003@1", [str(tmp_path)], 0.0)
    monkeypatch.setattr(session_folders, "singletons", lambda hosts, pids: {"1620967425"} if list(pids) else set())
    assert folders_without_daemon([], "prterun-vm-34003@1", [str(tmp_path)], 0.0) == []


@pytest.mark.parametrize(
    ("name", "host", "number"),
    [("node7.example.org", "node7", "3861839872"), ("10.1.2.3", "10.1.2.3", "359923712")],
)
def test_a_host_may_be_named_with_its_domain_or_by_an_address(tmp_path, monkeypatch, name, host, number):
    """The numbers are those of Open MPI 5.0.11 for the program with pid 3 on such a host."""
    monkeypatch.setattr(os, "uname", lambda: Mock(nodename=name))
    monkeypatch.setattr(processes, "all_pids", list)
    folder = tmp_path / f"ompi.{host}.{os.getuid()}" / "jf.0" / number
    folder.mkdir(parents=True)
    assert folders_without_daemon([3], "", [str(tmp_path)], 0.0)[0] == f"{folder}/"


@pytest.mark.parametrize("name", ["@", "\udcff", "a@²", "a@" + "9" * 5000, "a@-1", "@@1"])
def test_any_name_of_a_job_has_a_number(tmp_path, family, name):
    family.mkdir(parents=True)
    assert folders_without_daemon([], name, [str(tmp_path)], 0.0) == []


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_that_others_may_write_to_is_not_looked_into(tmp_path, family, mode):
    """They could have created a link in it to another folder of this user."""
    (tmp_path / "mine/1620967425").mkdir(parents=True)
    family.parent.mkdir()
    family.symlink_to(tmp_path / "mine")
    family.parent.chmod(mode)
    assert folders_without_daemon([], "prterun-vm-34003@1", [str(tmp_path)], 0.0) == []


def test_a_link_is_not_followed(tmp_path, family):
    (tmp_path / "mine/jf.0/1620967425").mkdir(parents=True)
    family.parent.symlink_to(tmp_path / "mine")
    assert folders_without_daemon([], "prterun-vm-34003@1", [str(tmp_path)], 0.0) == []
