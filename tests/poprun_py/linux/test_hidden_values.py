"""Hidden values: other users cannot read them in a command line, however they are quoted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from poprun_py.linux.hidden_values import places_of

SHOWN = """
import sys
from poprun_py.linux.hidden_values import hide_values
hide_values([("SECRET", sys.argv.pop()), ("NONE", "")])
print(open("/proc/self/cmdline").read().replace("\\0", "|"))
"""


def masked(arguments: list[str], *assignments: str) -> list[str]:
    line = bytearray(b"".join(argument.encode() + b"\0" for argument in arguments))
    for start, length in places_of({text.encode() for text in assignments}, bytes(line)):
        line[start : start + length] = b"*" * length
    return line.decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("argument", "value", "left"),
    [
        ("SECRET=hunter2", "hunter2", "SECRET=*******"),
        ("-x SECRET=hunter2 -x B=1", "hunter2", "-x SECRET=******* -x B=1"),
        ("-x SECRET=hunter2 -x SECRET=hunter2", "hunter2", "-x SECRET=******* -x SECRET=*******"),
        ('-x SECRET="hun ter2" -x B=1', "hun ter2", "-x SECRET=********** -x B=1"),
        ("-x 'SECRET=hun ter2' -x B=1", "hun ter2", "-x 'SECRET=********* -x B=1"),
        (r"0:-x SECRET=hun\ ter2", "hun ter2", "0:-x SECRET=*********"),
        (r'--mpi-local-args=-x SECRET="hun\"ter2"', 'hun"ter2', "--mpi-local-args=-x SECRET=***********"),
        ("-x SECRET=hun'ter'2 'not closed", "hunter2", "-x SECRET=********* 'not closed"),
        ('-x SECRET="é ü"', "é ü", "-x SECRET=*******"),
        ("-x SECRET", "hunter2", "-x SECRET"),
    ],
)
def test_quoted_values_are_found_too(argument: str, value: str, left: str) -> None:
    program = ["python", "-c", "print('a=b')"]
    assert masked(["poprun-py", argument, *program], f"SECRET={value}") == ["poprun-py", left, *program]


def test_a_process_hides_them_in_its_own_command_line() -> None:
    words = ["A=1", '-x SECRET="hun ter2"', "SECRET=hun ter2", "hun ter2"]
    shown = subprocess.run([sys.executable, "-c", SHOWN, *words], capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("|A=1|-x SECRET=**********|SECRET=********|hun ter2|")
