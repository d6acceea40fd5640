"""compat: programs that import popart and popdist run unchanged, alone and as instances of a job."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ipu_emu.ops.codegen.llvm_compiler import KERNEL_CACHE, kernel_folder
from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python

PROGRAM = (PROGRAMS / "ipu_emu/compat.py").read_text()


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=250, check=False, env=environ(folder)
    )


def environ(folder: Path) -> dict[str, str]:
    own = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return own | {KERNEL_CACHE: str(kernel_folder() or "")}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_program_runs_unchanged(program: Path) -> None:
    done = run(sys.executable, "-m", "ipu_emu.compat", "program.py", "--a", "b", folder=program.parent)
    assert (done.stdout, done.returncode) == ("said ['--a', 'b'] __main__ -1.0\n", 0), done.stderr


def test_it_runs_under_the_launcher(program: Path) -> None:
    launcher = ("poprun-py", "--num-instances", "2", "--num-replicas", "4", "--print-topology", "no")
    done = run(*launcher, *warm_python(*EMULATOR), "-m", "ipu_emu.compat", str(program), folder=program.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("said [] __main__ -15.0") == 2


WITH_CHILDREN = (PROGRAMS / "ipu_emu/compat_children.py").read_text()


def test_processes_that_it_starts_find_the_same_modules(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WITH_CHILDREN)
    done = run(sys.executable, "-m", "ipu_emu.compat", "program.py", folder=tmp_path)
    assert done.stdout.split("\n")[:2] == [
        "[([3], 'ipu_emu.popart')]",
        "ipu_emu.popart popdist_py popdist_py.popart",
    ], done.stderr[-2000:]


@pytest.mark.parametrize("name", ["popxl", "poptorch_geometric"])
def test_slips_are_one_message(name: str, tmp_path: Path) -> None:
    done = run(*warm_python(*EMULATOR), "-m", "ipu_emu.compat", "nothing.py", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "nothing.py: there is no such file; name the program to run\n"
    (tmp_path / "other.py").write_text(f"import {name}")
    done = run(*warm_python(*EMULATOR), "-m", "ipu_emu.compat", "other.py", folder=tmp_path)
    assert done.returncode == 1
    assert (
        f"{name} is not part of the emulator, which has popart, popdist, poptorch, libpvti and tensor" in done.stderr
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"x = (", "  File \"program.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"),
        (b"\0", "SyntaxError: source code string cannot contain null bytes\n"),
        (None, "program.py: the program cannot be read: Input/output error\n"),
    ],
    ids=["wrong syntax", "no text", "unreadable"],
)
def test_a_file_that_is_no_program_is_one_message(tmp_path: Path, text: bytes | None, said: str) -> None:
    if text is None:
        (tmp_path / "program.py").symlink_to("/proc/self/mem")
    else:
        (tmp_path / "program.py").write_bytes(text)
    done = run(*warm_python(*EMULATOR), "-m", "ipu_emu.compat", "program.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("kind", ["compiled", "archive"])
def test_compiled_programs_and_archives_run_too(tmp_path: Path, kind: str) -> None:
    (tmp_path / "__main__.py").write_text("import popart; print(popart.__name__)")
    program = tmp_path / f"program.{kind}"
    if kind == "compiled":
        py_compile.compile(str(tmp_path / "__main__.py"), str(program))
    else:
        with zipfile.ZipFile(program, "w") as archive:
            archive.write(tmp_path / "__main__.py", "__main__.py")
    done = run(*warm_python(*EMULATOR), "-m", "ipu_emu.compat", program.name, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ipu_emu.popart\n"), done.stderr


def test_exit_codes_of_the_program_are_kept(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import popart, sys; sys.exit(7)")
    assert run(*warm_python(*EMULATOR), "-m", "ipu_emu.compat", "leaves.py", folder=tmp_path).returncode == 7
