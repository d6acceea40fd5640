"""Uncaught exception: it is found in Python's output, and distinguished from all other text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from poprun_py.output.uncaught_exception import find_uncaught
from tests.helpers.mpi_jobs import PROGRAMS

TRACEBACK = b'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n    ^^^\n'

#: An ExceptionGroup, of two exceptions of which the first was raised elsewhere, and one in another.
GROUP = "ExceptionGroup: g (2 sub-exceptions)"
IN_TASKS = """
group = []
for number in range(2):
    def f(): raise ValueError('ab'[number])
    try: f()
    except ValueError as error: group.append(error)
raise ExceptionGroup('g', group)
"""
NESTED = "raise ExceptionGroup('o', [ExceptionGroup('i', [OSError('n')])])"


def stderr_of(*words: str) -> bytes:
    return subprocess.run([sys.executable, *words], capture_output=True, check=False).stderr


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1/0", "ZeroDivisionError: division by zero (<string>:1)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (<string>:1)"),
        ("import nonesuch", "ModuleNotFoundError: No module named 'nonesuch' (<string>:1)"),
        ("assert False", "AssertionError (<string>:1)"),
        ("raise Exception('a: b\\nand more')", "Exception: a: b (<string>:1)"),
        ("def f(): 1/0\nf()", "ZeroDivisionError: division by zero (<string>:1, in f)"),
        ("x = = 3", "SyntaxError: invalid syntax (<string>:1)"),
        ("try: 1/0\nexcept Exception as e: raise ValueError('v') from e", "ValueError: v (<string>:2)"),
        ("raise ExceptionGroup('g', [ValueError('a'), KeyError(1)])", f"{GROUP}: ValueError: a (<string>:1)"),
        (IN_TASKS, f"{GROUP}: ValueError: a (<string>:4, in f)"),
        (NESTED, "ExceptionGroup: o (1 sub-exception): ExceptionGroup: i (1 sub-exception): OSError: n (<string>:1)"),
        ("raise ValueError('x' * 999 + '. Do y')", f"ValueError: {'x' * 105}...{'x' * 74}. Do y (<string>:1)"),
    ],
)
def test_exceptions_printed_by_python_are_recognised(code, told):
    stderr = stderr_of("-c", code)
    assert str(find_uncaught(stderr)) == told
    assert str(find_uncaught(b"warning: something\n" + stderr + b"MPI says goodbye\n")) == told
    by_torch = b"".join(b"[rank12]: " + line for line in stderr.splitlines(keepends=True))
    assert str(find_uncaught(by_torch)) == told


def test_the_place_is_in_the_user_s_code_not_in_a_library():
    script = PROGRAMS / "poprun_py/broken_json.py"
    assert str(find_uncaught(stderr_of(str(script)))).endswith("(broken_json.py:7, in load)")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"error: no\n",
        TRACEBACK,
        TRACEBACK + b"ValueError: x\n" + b"and on it goes\n" * 20,
        b'  File "x.py", line 1, in f\n    f()\n',
        b"\xff" * 100,
    ],
)
def test_other_text_is_not(text):
    assert find_uncaught(text) is None
