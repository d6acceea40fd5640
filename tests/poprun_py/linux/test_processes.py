"""Processes: starting, finding and ending them, each in a process that does not adopt pytest's children."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import os, signal, sys, time
from poprun_py.linux import processes

def start(code, **changes):
    null = os.open(os.devnull, os.O_RDWR)
    settings = dict(executable=sys.executable, environment=dict(os.environ), cwd="/", streams=(null, 1, 2),
                    session=False, death_signal=signal.SIGKILL) | changes
    return processes.spawn([sys.executable, "-c", code], **settings)
"""


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_gets_its_words_streams_folder_and_a_group_of_its_own():
    out = python("""
        reader, writer = os.pipe()
        pid = start("import os; print(os.getcwd(), os.getpgid(0) == os.getpid(), os.environ['A'])",
                    cwd="/usr", streams=(0, writer, 2), environment={"A": "b"})
        os.close(writer)
        print(open(reader).read().strip())
        print(processes.reap() if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) else None, pid)
    """)
    words, ends = out.splitlines()
    assert words == "/usr True b"
    pid = ends.split()[-1]
    assert ends == f"([({pid}, 0)], False) {pid}"


def test_inheritable_descriptors_reach_the_program_and_others_do_not():
    out = python("""
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        start(f"import os; os.write({writer}, b'yes'); os.fstat({reader})", streams=(0, 1, os.open(os.devnull, 1)))
        os.wait()
        print(os.read(reader, 10))
    """)
    assert out == "b'yes'\n"


def test_signals_that_python_ignores_are_not_ignored_by_programs():
    out = python("""
        null = os.open(os.devnull, os.O_RDWR)
        processes.spawn(["grep", "SigIgn", "/proc/self/status"], executable="/bin/grep", environment={}, cwd="/",
                        streams=(null, 1, 2), session=True, death_signal=9)
        os.wait()
    """)
    ignored = int(out.split()[-1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ('executable="/nowhere"', "FileNotFoundError"),
        ('executable="/etc/passwd"', "PermissionError"),
        ('cwd="/nowhere"', "FileNotFoundError"),
    ],
)
def test_what_cannot_be_started_raises_and_leaves_no_child(changes, error):
    out = python(f"""
        try:
            start("pass", {changes})
        except OSError as error:
            print(type(error).__name__, processes.reap())
    """)
    assert out == f"{error} ([], False)\n"


def test_a_program_dies_with_its_parent():
    out = python("""
        reader, writer = os.pipe()
        if os.fork() == 0:
            print(start("import time; time.sleep(60)", streams=(0, writer, 2)), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writer)
        os.wait()
        print(os.read(reader, 1))  # returns when the last writer is gone
    """)
    assert out.splitlines()[1] == "b''"


def test_orphans_in_sessions_of_their_own_are_found_and_ended():
    out = python("""
        processes.adopt_orphans()
        code = '''
        import os, sys, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(60)
                os._exit(0)
        '''
        import textwrap
        start(textwrap.dedent(code))
        steady = 0
        while steady < 10:  # those in between are gone
            time.sleep(0.02)
            processes.reap()
            steady = steady + 1 if len(processes.descendants(os.getpid())) == 3 else 0
        print(len(processes.descendants(os.getpid())), processes.end_descendants(timeout=250))
        print(processes.descendants(os.getpid()))
    """)
    assert out.splitlines() == ["3 True", "[]"]


def test_signals_to_ended_processes_are_harmless():
    out = python("""
        pid = start("pass")
        os.wait()
        processes.kill(pid, 9); processes.kill_group(pid, 9)
        print(processes.is_alive(pid), processes.is_alive(os.getpid()))
    """)
    assert out == "False True\n"


@pytest.mark.parametrize("moment", ["setsid", "chdir"], ids=["before it is tied to it", "before its program runs"])
def test_a_child_whose_parent_dies_while_it_starts_ends_too(moment):
    """The parent has a handler for the signal, as the launcher has; its output stays open while the child lives."""
    code = f"""
    from poprun_py.linux.event_sources import SignalPipe

    SignalPipe((signal.SIGTERM,))
    original, parent = os.{moment}, os.getpid()
    def dies(*arguments):
        os.kill(parent, signal.SIGKILL)
        while os.getppid() == parent:
            time.sleep(0.001)
        return original(*arguments)
    os.{moment} = dies
    start("import time; time.sleep(60)", session=True, death_signal=signal.SIGTERM)
    """
    argv = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, timeout=40, check=False)
    assert done.returncode == -signal.SIGKILL
