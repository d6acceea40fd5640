"""Leftovers: only what an MPI left behind is removed, by name, age, owner and use."""

from __future__ import annotations

import mmap
import os
import subprocess
import time

import pytest

from poprun_py.linux.leftovers import remove_leftovers
from tests.poprun_py.helpers.random_kills import can_isolate

NAMES = [
    "mpich_shm_1d7cc14c_0",
    "ucx_shm_posix_68d367d6",
    "sm_segment.vm.0.9f3a0001.0",
    "vader_segment.vm.0.1",
    "ompi.4194400",
    "prterun.4194400",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", [False, True])
def test_leftovers_are_removed(tmp_path, name, folder):
    path = tmp_path / name
    if folder:
        (path / "1/0").mkdir(parents=True)
    else:
        path.touch()
    assert remove_leftovers(since=time.time() - 5, folders=[str(tmp_path)]) == [str(path)]
    assert not path.exists()


def test_what_a_living_process_manager_of_mpich_has_written_stays(tmp_path):
    (tmp_path / "hydra_pmi_proxy").symlink_to("/bin/sleep")
    path = tmp_path / "hydra_hwloc_xmlfile_Lx3ToV"
    with subprocess.Popen([tmp_path / "hydra_pmi_proxy", "60"]) as proxy:
        path.touch()
        assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []
        proxy.kill()


@pytest.mark.skipif(os.getuid() != 0 or not can_isolate(), reason="needs a mount namespace")
def test_a_process_manager_with_a_folder_of_its_own_needs_nothing_of_ours(tmp_path, monkeypatch):
    (tmp_path / "hydra_pmi_proxy").symlink_to("/bin/sleep")
    path = tmp_path / "shared" / "hydra_hwloc_xmlfile_Lx3ToV"
    path.parent.mkdir()
    hidden = f"mount -t tmpfs tmpfs {path.parent} && echo hidden && exec {tmp_path}/hydra_pmi_proxy 60"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", hidden], stdout=subprocess.PIPE) as proxy:
        assert proxy.stdout.readline() == b"hidden\n"
        path.touch()
        monkeypatch.setattr(os, "listdir", lambda _: [str(proxy.pid)])  # not those of other tests
        assert remove_leftovers(since=0, folders=[str(path.parent)]) == [str(path)]
        proxy.kill()


def test_folders_of_jobs_go_with_their_launcher(tmp_path):
    mine, theirs, elsewhere = (f"poprun-py.{host}.{pid}.0a1b" for host, pid in [
        (os.uname().nodename, 4194400), (os.uname().nodename, os.getpid()), ("another", 4194400)
    ])  # fmt: skip
    for name in (mine, theirs, elsewhere):
        (tmp_path / name).mkdir()
    assert remove_leftovers(since=0, folders=[str(tmp_path)]) == [str(tmp_path / mine)]


@pytest.mark.parametrize(
    "name", ["data", "mpich_shm", "my_mpich_shm_1_0", "ompi.txt", "ompi.vm.0", "psm_1234", "sem.mp-1", "ompi."]
)
def test_other_names_stay(tmp_path, name):
    (tmp_path / name).touch()
    assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []
    assert (tmp_path / name).exists()


def test_what_is_older_than_the_job_stays(tmp_path):
    (tmp_path / NAMES[0]).touch()
    assert remove_leftovers(since=time.time() + 60, folders=[str(tmp_path)]) == []


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file away needs root")
def test_what_is_somebody_elses_stays(tmp_path):
    (tmp_path / NAMES[0]).touch()
    os.chown(tmp_path / NAMES[0], 12345, 12345)
    assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []


def test_what_a_process_has_mapped_or_open_stays(tmp_path):
    mapped, opened = tmp_path / NAMES[0], tmp_path / NAMES[1]
    mapped.write_bytes(b"x" * 4096)
    with mapped.open("r+b") as stream:
        mapping = mmap.mmap(stream.fileno(), 4096)
    with opened.open("w"):
        assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []
    mapping.close()
    assert sorted(remove_leftovers(since=0, folders=[str(tmp_path)])) == sorted(map(str, (mapped, opened)))


def test_the_session_of_a_living_process_stays(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as owner:
        path = tmp_path / f"ompi.{owner.pid}"
        path.mkdir()
        assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []
        owner.kill()
    assert remove_leftovers(since=0, folders=[str(tmp_path)]) == [str(path)]


def test_links_are_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    (tmp_path / NAMES[0]).symlink_to(tmp_path / "precious")
    assert remove_leftovers(since=0, folders=[str(tmp_path)]) == []


def test_a_folder_that_is_not_there_is_no_error(tmp_path):
    assert remove_leftovers(since=0, folders=[str(tmp_path / "nowhere")]) == []
