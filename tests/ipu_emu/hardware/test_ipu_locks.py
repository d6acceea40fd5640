"""Locks of IPUs: two processes never hold the same IPU, and folders of other users are not used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.hardware import (
    Claims,
    Occupancy,
    System,
    share_of,
)
from tests.helpers.mpi_jobs import PROGRAMS

_CHILD = PROGRAMS / "ipu_emu/attached_device.py"


class Holder:
    """An object that holds IPUs."""


def test_two_processes_never_have_the_same_ipus(tmp_path: Path) -> None:
    occupancy, mine = Occupancy(Claims.on(System.pod(16), str(tmp_path))), Holder()
    assert occupancy.take(mine, [0, 3])
    child = subprocess.Popen(
        [sys.executable, _CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [child.stdout.readline().strip() for _ in range(4)]
    assert said == ["False", "True", "False", f"{os.getpid()} True"]
    assert [occupancy.holder(ipu) for ipu in range(4)] == [os.getpid(), child.pid, child.pid, os.getpid()]
    assert not occupancy.take(Holder(), [1])
    assert occupancy.take(mine, [0, 4]), "a holder changes what it has"
    child.communicate("\n", timeout=250)
    assert occupancy.is_free([1, 2, 3])


def test_ipus_of_a_collected_holder_are_released(tmp_path: Path) -> None:
    occupancy = Occupancy(Claims.on(System.pod(16), str(tmp_path)))
    holder = Holder()
    assert occupancy.take(holder, [5])
    assert not occupancy.take(Holder(), [5])
    del holder
    assert occupancy.is_free([5])
    again = Holder()
    assert occupancy.take(again, [5])
    occupancy.release(again)
    assert occupancy.is_free([5])


@pytest.mark.filterwarnings("ignore:Programs do not see")
def test_without_a_folder_a_process_excludes_no_other(tmp_path: Path) -> None:
    (tmp_path / f"ipu-emu-{os.getuid()}").write_text("in the way")
    occupancy = Occupancy(Claims.on(System.pod(16), str(tmp_path)))
    holder = Holder()
    assert occupancy.take(holder, [0])
    assert not occupancy.is_free([0])


def test_instances_of_a_job_share_its_pod_out() -> None:
    job = {
        "POPDIST_NUM_TOTAL_REPLICAS": "8",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_NUM_IPUS_PER_REPLICA": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "4",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_LOCAL_INSTANCE_INDEX": "2",
    }
    assert share_of(System.from_environ(job), job) == range(8, 12)
    assert share_of(System.pod(4), {}) == range(4)


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_one_warning_if_another_user_owns_the_folder_of_the_locks(kind: str, tmp_path: Path) -> None:
    planted = tmp_path / f"ipu-emu-{os.getuid()}"
    if kind == "link":
        planted.symlink_to(tmp_path)
    elif kind == "file":
        planted.touch()
    elif os.getuid() != 0:
        pytest.skip("needs root to give folders to others")
    else:
        planted.mkdir()
        os.chown(planted, 65534, -1)
    with pytest.warns(UserWarning, match=f"do not see which IPUs others use, as {planted} is not") as warned:
        claims = [Claims.on(System.pod(16), str(tmp_path)) for _ in range(2)]
    assert len(warned) == 1
    assert all(claim.take([0]) for claim in claims)
    assert Claims.all_in(str(tmp_path)) == []


def test_a_link_at_a_lock_is_not_followed(tmp_path: Path) -> None:
    Claims.on(System.pod(16), str(tmp_path))
    (lock,) = (tmp_path / f"ipu-emu-{os.getuid()}").iterdir()
    lock.rename(tmp_path / "elsewhere")
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match=f"as {lock.parent} cannot be used: Too many levels of symbolic links"):
        Claims.on(System.pod(16), str(tmp_path))


def test_one_warning_where_the_folder_of_the_locks_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "claims").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="do not see which IPUs others use, as .* cannot be used: No such") as warned:
        _ = [Claims.on(System.pod(16), str(tmp_path / "claims")) for _ in range(2)]
    assert [warning.filename for warning in warned] == [__file__]
