"""An uncaught exception is told from everything else that is written to stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest

from poprun_py.hang import has_raised

TRACEBACK = b'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n    ^^^\n'


@pytest.mark.parametrize(
    "code",
    [
        "1/0",
        "raise KeyboardInterrupt",
        "import nonesuch",
        "assert False",
        "raise Exception('a: b')",
        "def f(): 1/0\nf()",
    ],
)
def test_what_python_prints_is_recognised(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert has_raised(done.stderr)
    assert has_raised(b"warning: something\n" + done.stderr)
    assert not has_raised(done.stderr + b"and on it goes\n")


@pytest.mark.parametrize(
    "text",
    [b"", b"error: no\n", TRACEBACK, TRACEBACK + b"ValueError: x\nmore\n", TRACEBACK.replace(b"Trace", b"Back")],
)
def test_other_text_is_not(text):
    assert not has_raised(text)
