"""Program path: programs are found as a shell finds them."""

from __future__ import annotations

import shutil

import pytest

from poprun_py.errors import ProgramError
from poprun_py.site.program_path import find_program


@pytest.fixture
def folder(tmp_path):
    for name, mode in (("run", 0o755), ("data.py", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "sub").mkdir()
    return tmp_path


def find(name: str, folder, path: str = "/usr/bin:/bin") -> str:
    return find_program(name, environ={"PATH": path}, cwd=str(folder))


def test_a_name_is_looked_up_on_path(folder):
    assert find("sh", folder) == shutil.which("sh", path="/usr/bin:/bin")
    assert find("run", folder, f"/nowhere:{folder}") == str(folder / "run")


def test_a_path_is_relative_to_the_folder(folder):
    assert find("./run", folder) == f"{folder}/./run"
    assert find(str(folder / "run"), "/") == str(folder / "run")


def test_the_current_folder_counts_only_when_path_says_so(folder):
    with pytest.raises(ProgramError):
        find("run", folder)
    assert find("run", folder, "").endswith("run")


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("nonesuch", 127, "not on PATH"),
        ("./nonesuch", 127, "no such file"),
        ("./data.py", 126, "poprun-py python ./data.py"),
        ("data.py", 127, "it is not on PATH; put python before it: poprun-py python data.py"),
        ("run", 127, "it is not on PATH; to run it here: ./run"),
        ("./sub", 126, "it is a folder"),
        ("", 127, "not on PATH"),
    ],
)
def test_programs_that_cannot_run_are_refused(folder, name, code, text):
    with pytest.raises(ProgramError, match=text) as caught:
        find(name, folder)
    assert caught.value.exit_code == code


def test_a_script_whose_interpreter_is_missing_is_not_said_to_be_missing_itself(folder):
    (folder / "run").write_text("#!/no/such/python -u\n")
    with pytest.raises(
        ProgramError, match=r"\./run cannot be run: its first line names /no/such/python, which does not"
    ):
        find("./run", folder)
    (folder / "run").write_bytes(b"\x7fELF")
    assert find("./run", folder).endswith("run")
