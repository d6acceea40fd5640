"""Program records: one profile next to the executable, or next to the trace, and the profiles that a report finds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipu_emu import trace
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import Device, DeviceKind, System
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.weight_copies import WeightCopy
from ipu_emu.session.program_profile import program_profile
from ipu_emu.session.program_record import ProgramRecord
from ipu_emu.trace import read_run
from ipu_emu.trace.program_profiles import Profiles, read_profiles
from popdist_py.trace import PROFILE_SUFFIX, Category

POD = System.pod(16)


@pytest.fixture(scope="module")
def step() -> ModelledStep:
    executable = CompileRequest("mlp").compiled(POD).executable
    return ModelledStep(executable, Device(DeviceKind.IPU, 0, 4, POD.tiles_per_ipu, POD.version), 2, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    trace.start(tmp_path / "run")
    yield tmp_path / "run"
    trace.stop()


@pytest.fixture
def executable(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / "key.ipuexe"
    path.touch()
    return path


def profile_of(executable: Path) -> Path:
    return Path(f"{executable}{PROFILE_SUFFIX}")


def profiles(folder: Path) -> Profiles:
    return read_profiles(folder, read_run(folder).profiles)


def own(folder: Path) -> list[str]:
    """The profiles next to the trace."""
    return sorted(path.name for path in folder.glob(f"*{PROFILE_SUFFIX}"))


def test_the_profile_is_one_file_next_to_the_executable(step: ModelledStep, folder: Path, executable: Path) -> None:
    ProgramRecord.of(step, "training", executable=lambda: executable)
    assert sorted(path.name for path in executable.parent.iterdir()) == [executable.name, profile_of(executable).name]
    assert not own(folder)
    assert profile_of(executable).stat().st_mode & 0o777 == 0o600
    (profile,) = profiles(folder).programs
    assert profile == {
        **json.loads(json.dumps(program_profile(step, "training"))),
        "file": str(profile_of(executable)),
    }
    written = profile_of(executable).stat().st_mtime_ns
    ProgramRecord.of(step, "training", executable=lambda: executable)
    assert profile_of(executable).stat().st_mtime_ns == written, "the same profile is not written again"


def test_a_profile_moves_when_the_executable_is_saved(step: ModelledStep, folder: Path, executable: Path) -> None:
    file: list[Path] = []
    record = ProgramRecord.of(step, "training", executable=lambda: file[-1] if file else None)
    assert record is not None
    assert len(own(folder)) == 1
    file.append(executable)
    for _ in range(2):
        record.write()
        assert not own(folder)
        assert profile_of(executable).exists()
    second = executable.with_name("other.popef")
    second.touch()
    file.append(second)
    record.write()
    assert profile_of(executable).exists()
    assert profile_of(second).exists()
    read = profiles(folder)
    assert len(read.programs) == 1, "both are of one program"
    assert not read.damaged


def test_without_write_access_the_profile_is_next_to_the_trace(
    step: ModelledStep, folder: Path, executable: Path
) -> None:
    profile_of(executable).mkdir()
    ProgramRecord.of(step, "training", executable=lambda: executable)
    ProgramRecord.of(step, "validation", executable=lambda: executable.with_name("was never saved"))
    assert len(own(folder)) == 2
    assert {profile["name"] for profile in profiles(folder).programs} == {"training", "validation"}


def test_a_profile_that_is_gone_or_of_another_run_is_left_out(
    step: ModelledStep, folder: Path, executable: Path
) -> None:
    ProgramRecord.of(step, "training", executable=lambda: executable)
    content = profile_of(executable).read_bytes()
    profile_of(executable).write_bytes(content.replace(b'"training"', b'"another"'))
    (said,) = profiles(folder).damaged
    assert said.startswith(f"{profile_of(executable)}: was overwritten by another run")
    assert said.endswith("the report leaves it out")
    profile_of(executable).unlink()
    (said,) = profiles(folder).damaged
    assert "No such file" in said
    (folder / f"copied{PROFILE_SUFFIX}").write_bytes(content)
    read = profiles(folder)
    assert [profile["name"] for profile in read.programs] == ["training"]
    assert not read.damaged, "its copy is in the folder"


def test_only_the_first_process_of_a_job_describes_the_step(
    step: ModelledStep, folder: Path, executable: Path
) -> None:
    record = ProgramRecord.of(step, "training", executable=lambda: executable, offset=1)
    assert record is not None
    assert not profile_of(executable).exists()
    with record.copying("weights to the host", Category.WEIGHTS, copy_of(step)):
        pass
    record.copied("weights to the host")
    (profile,) = profiles(folder).copies
    assert os.path.dirname(profile["file"]) == str(folder)
    assert [row["replica"] for row in profile["copies"]] == [1]


def copy_of(step: ModelledStep) -> WeightCopy:
    weight = next(tensor for tensor in step.executable.graph.tensors.values() if tensor.role.value == "weight")
    return WeightCopy(weight.id, 0, weight.nbytes)


def test_copies_have_their_own_profile_the_first_time(step: ModelledStep, folder: Path, executable: Path) -> None:
    record = ProgramRecord.of(step, "training", executable=lambda: executable)
    assert record is not None
    copy = copy_of(step)
    for _ in range(2):
        with record.copying("save a checkpoint", Category.CHECKPOINT, copy):
            pass
        record.copied("save a checkpoint")
    name = f"{executable.name}.save-a-checkpoint{PROFILE_SUFFIX}"
    assert sorted(path.name for path in executable.parent.glob("*.json")) == [profile_of(executable).name, name]
    (profile,) = profiles(folder).copies
    assert (profile["phase"], profile["name"], profile["bytes"]) == (
        "checkpointing",
        "training: save a checkpoint",
        copy.nbytes,
    )
    (row,) = profile["copies"]
    assert (row["tensor"], row["role"], row["ipu"], row["memory"]) == (copy.tensor, "weight", 0, "tile memory")
    moving = row["modelled_seconds"] - row["modelled_sync_seconds"]
    assert moving == pytest.approx(copy.nbytes / step.machine.host_rate)
