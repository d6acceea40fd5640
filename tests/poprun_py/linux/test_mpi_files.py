"""MPI files: files that processes of the job hold are found, those of other processes are not."""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys

import pytest

from poprun_py.linux.mpi_files import MpiFiles
from tests.helpers.mpi_jobs import PROGRAMS

HOLDS_FILE = str(PROGRAMS / "poprun_py/linux/holds_file.py")


@pytest.fixture(params=["inotify", "refused inotify", "without inotify"])
def files(request, tmp_path):
    """The files in ``tmp_path`` that this process holds."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if request.param == "refused inotify":  # no descriptor is left for it
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    watched = MpiFiles(lambda: [os.getpid()], [str(tmp_path)], is_told=request.param != "without inotify")
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    yield watched
    watched.close()


def test_open_and_mapped_files_of_the_job_are_found(tmp_path, files):
    mapped, opened = tmp_path / "mpich_shm_1d7cc14c_0", tmp_path / "hydra_hwloc_xmlfile_Lx3ToV"
    mapped.write_bytes(b"x" * 4096)
    with mapped.open("r+b") as stream:
        mapping = mmap.mmap(stream.fileno(), 4096, mmap.MAP_SHARED)
    with opened.open("w"):
        assert files.new_files() == sorted(map(str, (mapped, opened)))
    assert files.new_files() == []
    mapping.close()


@pytest.mark.parametrize(
    ("command", "remembered"), [("hydra_pmi_proxy", True), ("hydra_pmi_proxy", False), ("cat", True)]
)
def test_a_closed_file_is_that_of_the_process_manager_that_remembers_it(tmp_path, command, remembered):
    path = tmp_path / "hydra_hwloc_xmlfile_Lx3ToV"
    words = ["remembered" if remembered else "forgotten", str(path), command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, HOLDS_FILE, *words], **pipes) as other:
        files = MpiFiles(lambda: [other.pid], [str(tmp_path)])
        path.touch()
        other.stdout.readline()
        assert files.new_files() == [str(path)] * (remembered and command == "hydra_pmi_proxy")
        files.close()
        other.communicate(b"\n")


def test_files_of_other_processes_are_not_found(tmp_path, files):
    theirs, nobodys = tmp_path / "sm_segment.vm.0.9f3a0001.0", tmp_path / "osc_sm.results"
    theirs.touch()
    nobodys.mkdir()
    with theirs.open() as stream, subprocess.Popen(["sleep", "60"], stdin=stream) as other:
        stream.close()
        assert files.new_files() == []
        other.kill()


@pytest.mark.parametrize("is_told", [True, False])
def test_a_segment_whose_maker_died_at_once_is_abandoned(tmp_path, is_told):
    (tmp_path / "mpich_shm_11111111_0").touch()  # created before, so it may belong to another process
    files = MpiFiles(lambda: [os.getpid()], [str(tmp_path)], is_told=is_told)
    segments = ("mpich_shm_1d7cc14c_0", "open_mpi.0000", "ucx_shm_posix_46d64b60")
    for name in ("mpich_shm_notes", "open_mpi.txt", "osc_sm.results", *segments):
        (tmp_path / name).touch()
    (tmp_path / "mpich_shm_22222222_0").symlink_to("/etc/passwd")
    assert files.abandoned() == [str(tmp_path / name) for name in segments]
    files.close()


@pytest.mark.parametrize("mapped", [False, True])
def test_a_segment_that_a_process_of_another_container_holds_is_not_abandoned(tmp_path, mapped):
    files = MpiFiles(lambda: [], [str(tmp_path)])
    path = tmp_path / "mpich_shm_1d7cc14c_0"
    path.write_bytes(bytes(4096))
    words = ["mapped" if mapped else "open", str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, HOLDS_FILE, *words], **pipes) as other:
        other.stdout.readline()
        assert files.abandoned() == []
        other.communicate(b"\n")
    assert files.abandoned() == [str(path)]
    files.close()


def test_other_names_are_not_looked_for(tmp_path, files):
    with (tmp_path / "thesis").open("w"), (tmp_path / "my_mpich_shm_1").open("w"):
        assert files.new_files() == []


def test_a_file_that_is_taken_up_later_is_found_then(tmp_path, files):
    path = tmp_path / "mpich_shm_1d7cc14c_0"
    path.touch()
    assert files.new_files() == []
    with path.open():
        assert files.new_files() == [str(path)]
