"""Job record: listed files are removed once no process of the job is left; no other file is ever removed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from poprun_py.linux import job_record
from poprun_py.linux.job_record import JobRecord, new_folder, remove_abandoned, temporary_folders

#: Names of files that MPIs create, which a user's own files may have too.
NAMES = ["mpich_shm_notes", "osc_sm.results", "sm_segment.vm.0.9f3a0001.0", "ompi.4194400", "prterun.4194400"]


@pytest.fixture(autouse=True)
def _shared_memory(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(job_record, "SHARED_MEMORY", str(tmp_path / "shm"))


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def abandoned(temporary: Path, *listed: Path) -> JobRecord:
    """The record of a job whose processes were all killed."""
    record = JobRecord(new_folder(str(temporary)))
    record.make_folder()
    record.make_shared_folder()
    record.add(map(str, listed))
    os.close(record.fileno())
    return record


def test_files_listed_by_an_abandoned_job_are_removed(temporary, tmp_path):
    segment, session = tmp_path / "mpich_shm_1", tmp_path / "ompi.7"
    segment.touch()
    (session / "1/0").mkdir(parents=True)
    record = abandoned(temporary, segment, session)
    removed = remove_abandoned(str(temporary))
    assert removed == [str(segment), str(session), record.shared_folder, record.folder]
    assert not any(map(os.path.exists, removed))
    assert os.listdir(temporary) == os.listdir(tmp_path / "shm") == []


@pytest.mark.parametrize("name", NAMES)
def test_unlisted_files_are_kept(temporary, name):
    (temporary / name).mkdir()
    (temporary / name / "thesis.txt").touch()
    abandoned(temporary)
    remove_abandoned(str(temporary))
    assert (temporary / name / "thesis.txt").exists()


def test_listed_files_are_kept_while_a_process_of_the_job_runs(temporary, tmp_path):
    (tmp_path / "segment").touch()
    launcher = JobRecord(new_folder(str(temporary)))
    supervisor = JobRecord(launcher.make_folder())
    launcher.add([str(tmp_path / "segment")])
    assert launcher.close() == remove_abandoned(str(temporary)) == []
    assert supervisor.close() == [str(tmp_path / "segment"), launcher.folder]


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs a pid namespace",
)
def test_locks_are_seen_by_processes_that_cannot_see_the_job(temporary, tmp_path):
    (tmp_path / "segment").touch()
    mine = JobRecord(new_folder(str(temporary)))
    mine.add([str(tmp_path / "segment")])
    code = f"from poprun_py.linux.job_record import remove_abandoned; print(remove_abandoned({str(temporary)!r}))"
    there = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    assert subprocess.run(there, capture_output=True, text=True, check=True).stdout == "[]\n"
    assert mine.close() == [str(tmp_path / "segment")]


def test_another_file_of_the_same_name_is_kept(temporary, tmp_path):
    path = tmp_path / "segment"
    path.touch()
    abandoned(temporary, path)
    path.rename(tmp_path / "kept")  # so that its inode is not reused
    path.write_text("a thesis")
    remove_abandoned(str(temporary))
    assert path.read_text() == "a thesis"


def test_links_are_never_listed_followed_or_removed(temporary, tmp_path):
    (tmp_path / "precious").touch()
    link, segment = tmp_path / "link", tmp_path / "segment"
    link.symlink_to(tmp_path / "precious")
    segment.touch()
    record = abandoned(temporary, link, segment)
    segment.unlink()
    segment.symlink_to(tmp_path / "precious")
    Path(record.folder).rmdir()
    Path(record.folder).symlink_to(tmp_path)
    remove_abandoned(str(temporary))
    assert (tmp_path / "precious").exists()
    assert link.is_symlink()
    assert segment.is_symlink()


def test_a_link_in_place_of_a_record_is_not_followed(temporary, tmp_path):
    (tmp_path / "segment").touch()
    record = Path(f"{abandoned(temporary, tmp_path / 'segment').folder}.files")
    record.rename(tmp_path / "elsewhere")
    record.symlink_to(tmp_path / "elsewhere")
    remove_abandoned(str(temporary))
    assert (tmp_path / "segment").exists()
    folder = new_folder(str(temporary))
    Path(f"{folder}.files").symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        JobRecord(folder)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file away needs root")
@pytest.mark.parametrize("what", ["segment", "record", "base"])
def test_folders_of_other_users_are_not_trusted(temporary, tmp_path, what):
    segment = tmp_path / "segment"
    segment.touch()
    record = abandoned(temporary, segment)
    paths = {"segment": segment, "record": f"{record.folder}.files", "base": os.path.dirname(record.folder)}
    os.chown(paths[what], 12345, 12345)
    assert str(segment) not in remove_abandoned(str(temporary))
    assert segment.exists()


def test_a_folder_that_others_may_write_to_is_not_used(temporary):
    base = Path(new_folder(str(temporary))).parent
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(PermissionError):
        JobRecord(new_folder(str(temporary)))
    assert remove_abandoned(str(temporary)) == []


def test_the_folders_of_a_job_are_the_users_alone(temporary):
    record = JobRecord(new_folder(str(temporary)))
    for folder in (record.make_folder(), record.make_shared_folder()):
        for path in (folder, os.path.dirname(folder)):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    record.close()


def test_a_damaged_record_removes_what_can_be_read(temporary, tmp_path):
    (tmp_path / "segment").touch()
    record = abandoned(temporary, tmp_path / "segment")
    path = Path(f"{record.folder}.files")
    path.write_bytes(b"\0\xff\n1 2\n1 2 relative\n/etc/passwd\n" + path.read_bytes() + b"999")
    assert str(tmp_path / "segment") in remove_abandoned(str(temporary))


def test_jobs_may_start_and_end_at_the_same_time(temporary):
    with multiprocessing.get_context("fork").Pool(4, initializer=os.nice, initargs=(1,)) as pool:
        assert sum(pool.map(_one_after_another, [str(temporary)] * 4)) == 0
    assert os.listdir(temporary) == []


def test_the_last_job_may_end_while_another_looks(temporary, monkeypatch):
    Path(new_folder(str(temporary))).parent.mkdir(mode=0o700)
    monkeypatch.setattr(job_record, "is_private", lambda folder: shutil.rmtree(folder) is None)
    assert remove_abandoned(str(temporary)) == []


def test_the_last_job_may_end_while_another_starts(temporary, monkeypatch):
    base, private = Path(new_folder(str(temporary))).parent, job_record.is_private
    base.mkdir(mode=0o700)

    def removed_once(folder):
        monkeypatch.setattr(job_record, "is_private", private)
        shutil.rmtree(folder)
        return False

    monkeypatch.setattr(job_record, "is_private", removed_once)
    record = JobRecord(new_folder(str(temporary)))
    assert os.path.exists(record.folder + ".files")
    record.close()


def _one_after_another(temporary: str) -> int:
    """Number of jobs whose record did not survive until their end."""
    lost = 0
    for _ in range(100):
        remove_abandoned(temporary)
        record = JobRecord(new_folder(temporary))
        record.make_folder()
        remove_abandoned(temporary)
        lost += not os.path.isdir(record.folder) or not os.path.exists(record.folder + ".files")
        record.close()
    return lost


def test_nothing_is_there_at_first(tmp_path):
    assert remove_abandoned(str(tmp_path / "nowhere")) == []
    shutil.rmtree(tmp_path)


def test_no_file_is_made_to_try_a_temporary_folder(temporary, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("TMP", "relative")
    before = temporary.stat().st_mtime_ns
    assert temporary_folders() == [str(temporary), str(Path("relative").absolute()), "/tmp", "/var/tmp"]
    assert temporary.stat().st_mtime_ns == before


def test_a_full_disk_loses_a_line_and_nothing_else(temporary, tmp_path, monkeypatch):
    paths = [tmp_path / f"mpich_shm_{number}" for number in range(3)]
    for path in paths:
        path.touch()
    record = JobRecord(new_folder(str(temporary)))
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:9]))
    assert record.add([str(paths[0])]) == "No space left on device"

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert record.add([str(paths[1])]) == "No space left on device"
    monkeypatch.setattr(os, "write", write)
    assert record.add([str(paths[2])]) == ""
    assert record.remove_listed() == [str(paths[2])]
    record.close()
