"""Processes: starting, finding and ending them, each in a process that does not adopt pytest's children."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.helpers.mpi_jobs import PROGRAMS

PROGRAM = str(PROGRAMS / "poprun_py/linux/processes.py")


def printed(*words: str) -> str:
    """The output of the program for the case that ``words`` name."""
    done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_gets_its_words_streams_folder_and_a_group_of_its_own():
    words, ends = printed("surroundings").splitlines()
    assert words == "/usr True b"
    pid = ends.split()[-1]
    assert ends == f"([({pid}, 0)], False) {pid}"


def test_inheritable_descriptors_reach_the_program_and_others_do_not():
    assert printed("descriptors") == "b'yes'\n"


def test_signals_that_python_ignores_are_not_ignored_by_programs():
    ignored = int(printed("ignored_signals").split()[-1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("executable", "/nowhere", "FileNotFoundError"),
        ("executable", "/etc/passwd", "PermissionError"),
        ("cwd", "/nowhere", "FileNotFoundError"),
    ],
)
def test_a_failed_start_raises_and_leaves_no_child(setting, value, error):
    assert printed("cannot_start", setting, value) == f"{error} ([], False)\n"


@pytest.mark.parametrize("moment", ["chdir", "execve"])
def test_a_program_that_does_not_start_in_time_is_killed(moment):
    said = "its file or folder did not answer within 0.5 s, as on a dead network file system: True True"
    assert printed("hangs", moment).splitlines() == [said, "([], False)"]


def test_a_program_dies_with_its_parent():
    assert printed("parent_dies").splitlines()[1] == "b''"


def test_orphans_in_sessions_of_their_own_are_found_and_ended():
    assert printed("orphans").splitlines() == ["3 True", "[]"]


def test_signals_to_ended_processes_are_harmless():
    assert printed("signals_to_the_dead") == "False True\n"


@pytest.mark.parametrize("moment", ["setsid", "chdir"], ids=["before it is tied to it", "before its program runs"])
def test_a_child_whose_parent_dies_while_it_starts_ends_too(moment):
    """Its output stays open while the child lives."""
    argv = [sys.executable, PROGRAM, "parent_dies_while_it_starts", moment]
    done = subprocess.run(argv, capture_output=True, timeout=40, check=False)
    assert done.returncode == -signal.SIGKILL
