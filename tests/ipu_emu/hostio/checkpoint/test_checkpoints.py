"""Checkpoints: their format, resuming from them, and damaged or incomplete ones, which are never restored."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from ipu_emu.hostio.checkpoint import CheckpointError, Checkpoints
from ipu_emu.hostio.checkpoint.checkpoint_folder import Folder
from ipu_emu.hostio.checkpoint.manifest import Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import read, write
from tests.helpers.mpi_jobs import ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python
from tests.ipu_emu.helpers.resuming_job import Job, run

PROGRAM = ROOT / "tests" / "ipu_emu" / "helpers" / "resuming_job.py"
STEPS = 8


def trained(folder: Path, steps: int, *, keep: int = 2) -> tuple[int, str]:
    """The step from which a run of this process started, and the digest of its weights."""
    job = Job()
    with Checkpoints(folder, keep=keep) as checkpoints:
        start = checkpoints.restore(job.session).step
        for step in range(start, steps):
            job.step(step)
            checkpoints.save(job.session, step + 1, {"step": step})
    digest = job.digest()
    job.close()
    return start, digest


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The digest of a run that neither stops nor saves checkpoints."""
    job = Job()
    for step in range(STEPS):
        job.step(step)
    return job.digest()


# Format


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
def test_the_safetensors_package_reads_what_is_written(dtype, tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (3, 5)).astype(dtype)
    arrays = {"a": values, "empty": values[:0].copy(), "number": values[0, 0].reshape(()), "b/c@1": values.T.copy()}
    write(tmp_path / "x", arrays)
    loaded = safetensors.numpy.load_file(tmp_path / "x")
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array, strict=True)


def test_files_of_the_safetensors_package_are_read(tmp_path):
    arrays = {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "x": np.ones(3, ml_dtypes.bfloat16)}
    safetensors.numpy.save_file(arrays, tmp_path / "x")
    for name, array in read(tmp_path / "x").items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


# Resuming


@pytest.mark.parametrize("first", [1, 5])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(first, undisturbed, tmp_path):
    assert trained(tmp_path, first)[0] == 0
    assert trained(tmp_path, STEPS) == (first, undisturbed)


def test_the_program_gets_its_own_state_back(tmp_path):
    trained(tmp_path, 3)
    job = Job()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(job.session).state == {"step": 2}


FORMS = {"whole": [], "sharded": ["sharded"]}


@pytest.fixture
def two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    set_replicas(monkeypatch, 2)


def set_replicas(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make this process one instance with all replicas of a job."""
    names = {"NUM_TOTAL_REPLICAS": count, "NUM_LOCAL_REPLICAS": count}
    names |= {"REPLICA_INDEX_OFFSET": 0, "NUM_IPUS_PER_REPLICA": 1}
    for name, value in {**names, "UNIFORM_REPLICAS_PER_INSTANCE": 1}.items():
        monkeypatch.setenv(f"POPDIST_{name}", str(value))


@pytest.mark.usefixtures("two_replicas")
def test_a_run_resumes_with_another_number_of_instances(tmp_path):
    """A job of two instances makes the first part for one instance, and another resumes from one instance."""
    jobs = []
    for name, form in FORMS.items():
        folder = tmp_path / name
        run(folder / "one", 4, 0.0, *form)
        jobs += [
            [folder / "two", 4, 0, *form],
            [folder / "one", STEPS, 0, *form],
            [folder / "stayed", STEPS, 0, *form],
        ]
    command = ["poprun-py", "--num-instances", "2", "--num-replicas", "2", *warm_python(*EMULATOR)]
    command += [str(PROGRAM)]
    command += " , ".join(" ".join(map(str, job)) for job in jobs).split()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPDIST_")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment)
    lines = iter([line.removeprefix("[1,0]<stdout>:") for line in done.stdout.splitlines()])
    for name, form in FORMS.items():
        assert next(lines) == "from step 0"
        next(lines)
        assert next(lines) == "from step 4"
        to_two = next(lines)
        assert next(lines) == "from step 0"
        stayed = next(lines)
        assert to_two == stayed
        assert run(tmp_path / name / "two", STEPS, 0.0, *form) == (4, stayed)


def test_the_newest_are_kept(tmp_path):
    trained(tmp_path, 6, keep=2)
    assert sorted(path.name for path in tmp_path.glob("*step*")) == ["step-000000005", "step-000000006"]
    assert (tmp_path / "latest").read_text() == "step-000000006 abf00f4d\n"


# Damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    os.truncate(path, 1 << 39)


@pytest.mark.parametrize("damage", [flip, cut, grow, Path.unlink])
@pytest.mark.parametrize("name", ["instance-0-of-1.safetensors", "checkpoint.json"])
def test_a_damaged_one_is_passed_over(damage, name, undisturbed, tmp_path):
    trained(tmp_path, 5)
    damage(tmp_path / "step-000000005" / name)
    with pytest.warns(UserWarning, match="step-000000005 is skipped: .*; step-000000004 is used instead") as warned:
        assert trained(tmp_path, STEPS) == (4, undisturbed)
    assert [warning.filename for warning in warned] == [__file__]  # the line of the program that restores


LATEST: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.touch(),
    "no UTF-8": lambda path: path.write_bytes(b"step-00000\xff0003"),
    "a NUL": lambda path: path.write_bytes(b"step-00000\x000003"),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a link to elsewhere": lambda path: path.symlink_to(path.with_name("elsewhere")),
    "a link to a folder": lambda path: path.symlink_to(path.with_name("step-000000003")),
    "a link to itself": lambda path: path.symlink_to(path),
    "no checkpoint of ours": lambda path: path.write_text("../../etc"),
    "gone": lambda path: path.write_text("step-000000099"),
}


@pytest.mark.parametrize("damage", LATEST.values(), ids=LATEST)
def test_damage_to_the_pointer_does_not_matter(damage, undisturbed, tmp_path):
    trained(tmp_path, 5)
    (tmp_path / "elsewhere").write_text("not ours")
    (tmp_path / "latest").unlink()
    damage(tmp_path / "latest")
    with pytest.warns(UserWarning, match="latest cannot be used: .*; step-000000005 is used") as warned:
        assert trained(tmp_path, STEPS) == (5, undisturbed)
    assert [warning.filename for warning in warned] == [__file__]
    assert (tmp_path / "latest").read_text().split()[0] == "step-000000008"
    assert (tmp_path / "elsewhere").read_text() == "not ours"


def test_no_changed_byte_of_the_pointer_leads_to_another_checkpoint(tmp_path):
    folder, path = Folder(tmp_path), tmp_path / "latest"
    good = b"step-000000006 abf00f4d\n"
    path.write_bytes(good)
    assert folder.latest() == ("step-000000006", "")
    for place, byte in itertools.product(range(len(good)), range(256)):
        path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
        assert folder.latest() in (("step-000000006", ""), ("", "it is damaged"))
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert folder.latest() in (("step-000000006", ""), ("", "it is damaged"))


def test_an_older_one_can_be_chosen_by_hand(tmp_path):
    trained(tmp_path, 5, keep=3)
    (tmp_path / "latest").write_text("step-000000003\n")
    assert trained(tmp_path, 5)[0] == 3


def test_the_one_before_a_damaged_one_is_used_not_a_later_one_of_another_run(tmp_path):
    trained(tmp_path / "another", 7, keep=3)
    trained(tmp_path, 4, keep=3)
    for step in (6, 7):
        shutil.move(tmp_path / f"another/step-{step:09}", tmp_path)
    cut(tmp_path / "step-000000004/checkpoint.json")
    with pytest.warns(UserWarning, match="step-000000004 is skipped: .*; step-000000003 is used instead"):
        assert trained(tmp_path, 4)[0] == 3


def test_a_folder_at_the_pointer_is_kept_and_reported(tmp_path):
    trained(tmp_path, 2)
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    with pytest.raises(CheckpointError, match="latest is a folder"):
        trained(tmp_path, 3)
    (tmp_path / "latest" / "mine").unlink()
    (tmp_path / "latest").rmdir()
    assert trained(tmp_path, 3)[0] == 3


def test_if_all_checkpoints_are_damaged_the_job_ends_and_they_are_kept(tmp_path):
    trained(tmp_path, 2)
    for path in tmp_path.glob("step-*/checkpoint.json"):
        flip(path)
    with pytest.raises(CheckpointError, match=r"step-000000002"):
        trained(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-000000001", "step-000000002"]


def test_folders_with_other_names_are_ignored(undisturbed, tmp_path):
    trained(tmp_path, 3)
    for name in ("step-000000003.bak", "step-9", "step-old"):
        shutil.copytree(tmp_path / "step-000000003", tmp_path / name)
    shutil.copytree(tmp_path / "step-000000003", tmp_path / "step-000000007")
    (tmp_path / "latest").unlink()
    (tmp_path / ".step-notes.part").mkdir()
    with pytest.warns(UserWarning, match="step-000000007 is skipped: checkpoint.json is of step 3"):
        assert trained(tmp_path, STEPS) == (3, undisturbed)
    assert (tmp_path / ".step-notes.part").exists()


def test_leftovers_of_a_kill_while_writing_latest_are_removed(tmp_path):
    trained(tmp_path, 1)
    ours, other = tmp_path / ".latest.ed7d1c9556a5b0da.tmp", tmp_path / ".latest.mine.tmp"
    ours.write_text("step-000000001\n")
    other.write_text("notes")
    trained(tmp_path, 2)
    assert not ours.exists()
    assert other.exists()


def test_damaged_ones_take_no_place_of_whole_ones_and_are_never_removed(tmp_path):
    trained(tmp_path, 3, keep=3)
    for name in ("step-000000009", "step-000000008", "step-000000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis").write_text("text")
    cut(tmp_path / "step-000000002" / "instance-0-of-1.safetensors")
    trained(tmp_path, 5, keep=3)
    complete = sorted(path.name[-1] for path in tmp_path.glob("step-*") if (path / "checkpoint.json").exists())
    assert complete == ["2", "3", "4", "5"]  # 2 is damaged
    assert len(list(tmp_path.glob("step-*/thesis"))) == 3


def test_ones_of_another_run_take_no_place_of_those_of_this_run(tmp_path):
    trained(tmp_path, 7, keep=3)
    shutil.move(tmp_path / "step-000000005", tmp_path / "aside")
    (tmp_path / "latest").unlink()
    for step in (6, 7):
        cut(tmp_path / f"step-{step:09}" / "checkpoint.json")
    shutil.move(tmp_path / "aside", tmp_path / "step-000000005")
    job = Job()
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(job.session, step)
    job.close()
    assert sorted(path.name[-1] for path in tmp_path.glob("step-*")) == ["2", "3", "5", "6", "7"]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_run_that_is_killed_while_it_replaces_its_only_one_loses_nothing(renames, tmp_path, monkeypatch):
    first, _ = trained(tmp_path, 3, keep=1)
    assert first == 0
    rename, left = Path.rename, iter(range(renames))

    def killed(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    job = Job()
    checkpoints = Checkpoints(tmp_path, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        checkpoints.save(job.session, 3)
        if renames < 2:
            with pytest.raises(KeyboardInterrupt):
                checkpoints.wait()
        else:
            checkpoints.wait()
    with suppress(KeyboardInterrupt):
        checkpoints.close()
    assert Checkpoints(tmp_path, keep=1).restore(job.session).step == 3
    assert [path.name for path in tmp_path.glob("*step*")] == ["step-000000003"]
    job.close()


def test_links_in_the_folder_lead_nowhere(undisturbed, tmp_path):
    trained(tmp_path / "run", 3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("text")
    for step in (4, 5):
        (tmp_path / "run" / f".step-{step:09}.part").symlink_to(tmp_path / "mine")
    assert trained(tmp_path / "run", STEPS) == (3, undisturbed)
    assert os.listdir(tmp_path / "mine") == ["thesis"]


def test_one_of_another_model_is_refused(tmp_path):
    trained(tmp_path, 1)
    folder = tmp_path / "step-000000001"
    arrays = {name: array.copy() for name, array in read(folder / "instance-0-of-1.safetensors").items()}
    arrays["w"] = arrays["w"][:, 1:].copy()
    (folder / "instance-0-of-1.safetensors").unlink()
    digest = write(folder / "instance-0-of-1.safetensors", arrays)
    manifest = Manifest.decoded((folder / "checkpoint.json").read_bytes())
    size = (folder / "instance-0-of-1.safetensors").stat().st_size
    manifest = replace(manifest, files={"instance-0-of-1.safetensors": (size, digest)})
    (folder / "checkpoint.json").write_bytes(manifest.encoded())
    with pytest.raises(CheckpointError, match=r"w is float32 \[16, 63\].*float32 \[16, 64\]"):
        trained(tmp_path, 2)


def test_one_of_another_number_of_replicas_is_refused(tmp_path, monkeypatch):
    trained(tmp_path, 1)
    set_replicas(monkeypatch, 2)
    with pytest.raises(CheckpointError, match=r"1 replica.*2.*--num-replicas 1"):
        trained(tmp_path, 2)


# Mistakes


def test_a_folder_belongs_to_one_job(tmp_path):
    with Checkpoints(tmp_path), pytest.raises(CheckpointError, match="another job"):
        Checkpoints(tmp_path)
    Checkpoints(tmp_path).close()


def test_errors_of_saving_are_reported(tmp_path):
    job = Job()
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="state may contain numbers"):
            checkpoints.save(job.session, 1, {"array": np.zeros(1)})
        deep: list[object] = []
        for _ in range(200):
            deep = [deep]
        for state, fault in (
            ({"deep": deep}, "more than 100 levels"),
            ({1 << 20000: 0}, "state may contain numbers"),
        ):
            with pytest.raises(CheckpointError, match=fault):
                checkpoints.save(job.session, 1, state)
        for step in (-1, 1.5, "1"):
            with pytest.raises(CheckpointError, match="give the number of steps"):
                checkpoints.save(job.session, step)
        checkpoints.save(job.session, np.int64(1))
    (tmp_path / "file").touch()
    for folder, keep in ((tmp_path / "file" / "x", 1), (tmp_path, 0)):
        with pytest.raises(CheckpointError, match=r"cannot be written|keep = 0"):
            Checkpoints(folder, keep=keep)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB, which two checkpoints fit on."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs root to mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_full_disk_is_reported_and_earlier_checkpoints_are_kept(small_disk, undisturbed):
    trained(small_disk, 3)
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096))
    with pytest.raises(CheckpointError, match="No space left on device"):
        trained(small_disk, STEPS)
    (small_disk / "ballast").unlink()
    assert trained(small_disk, STEPS) == (3, undisturbed)
    assert not list(small_disk.glob("*.part"))


def test_whichever_write_finds_the_disk_full_earlier_checkpoints_are_kept(small_disk, undisturbed):
    """Every number of free pages from none on, until two more checkpoints fit."""
    trained(small_disk / "good", 3)
    saved: list[int] = []
    for free in itertools.count(step=4096):
        place = small_disk / "run"
        shutil.copytree(small_disk / "good", place)
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - free))
        with suppress(CheckpointError):
            trained(place, 5, keep=9)
        (small_disk / "ballast").unlink()
        with warnings.catch_warnings(action="error"):
            start, digest = trained(place, STEPS)
        assert digest == undisturbed
        assert not list(place.glob(".*.part")) + list(place.glob("*.tmp"))
        saved.append(start)
        if start == 5:
            break
        shutil.rmtree(place)
    assert saved == sorted(saved)
    assert set(saved) == {3, 4, 5}


def test_a_folder_that_another_host_does_not_see_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(Folder, "begin", lambda folder, step: None)  # the first instance made it on its own disk
    with pytest.raises(
        CheckpointError, match=f"No such file or directory; {tmp_path} must be one folder that all hosts"
    ):
        trained(tmp_path, 2)


# Kills


def _program(folder: Path) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, str(PROGRAM), str(folder), str(STEPS), "0.01"]
    return command, os.environ | {"PYTHONPATH": str(ROOT)}


def _to_its_end(folder: Path) -> str:
    command, environment = _program(folder)
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment).stdout


def kill(folder: Path, seconds: float, ballast: int = 0) -> None:
    """Run the program and kill it after ``seconds`` of steps.

    The disk has ``ballast`` bytes less, and may be full before the kill.
    """
    if ballast:
        (folder.parent / "ballast").write_bytes(bytes(ballast))
    command, environment = _program(folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(seconds)
        program.send_signal(signal.SIGKILL)
    (folder.parent / "ballast").unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_run_reaches_the_same_bits(seed, undisturbed, tmp_path):
    kill(tmp_path, random.Random(seed).uniform(0, 0.15))
    assert run(tmp_path, STEPS)[1] == undisturbed
    assert not list(tmp_path.glob("*.part"))


def main() -> None:
    """Kill it COUNT times: ``python -m tests.ipu_emu.hostio.checkpoint.test_checkpoints COUNT FOLDER [full]``.

    With ``full`` FOLDER is a small disk (mount -t tmpfs -o size=256k) with a random number of free bytes.
    """
    count, folder, full = int(sys.argv[1]), Path(sys.argv[2]), "full" in sys.argv[3:]
    undisturbed = _to_its_end(folder / "undisturbed").split("\n")[1]
    shutil.rmtree(folder / "undisturbed")
    ends: list[str] = []
    starts: list[int] = []
    for turn in range(count):
        place = folder / str(turn)
        free = shutil.disk_usage(folder).free if full else 0
        ballast = max(0, free - random.randint(0, 1 << 17)) if full else 0
        kill(place, random.uniform(0, 0.12), ballast)
        lines = _to_its_end(place).split("\n")
        starts.append(int(lines[0].split()[-1]))
        ends.append(lines[1])
        shutil.rmtree(place)
    other = sum(end != undisturbed for end in ends)
    print(f"{count} kills, started again from steps {sorted(starts)}: {other} ended otherwise than undisturbed")


if __name__ == "__main__":
    main()


@pytest.mark.parametrize("exists", [False, True])
def test_only_the_owner_can_open_the_lock(tmp_path: Path, exists: bool) -> None:
    """Whoever can read a file can lock it."""
    lock = tmp_path / ".lock"
    before = os.umask(0)
    try:
        if exists:
            lock.touch()
        with Checkpoints(tmp_path):
            assert lock.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
