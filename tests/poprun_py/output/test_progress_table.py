"""Progress table: its content, and its display on a terminal."""

from __future__ import annotations

import fcntl
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from poprun_py.output.progress_table import InstanceRow, ProgressTable
from poprun_py.wire.messages import Report, Usage
from tests.helpers.mpi_jobs import PROGRAMS


def rows(count: int) -> list[InstanceRow]:
    return [InstanceRow(index, "vm", nodes="0", pid=100 + index, state="running") for index in range(count)]


def test_cpu_is_the_usage_between_two_messages():
    row = InstanceRow(0, "vm")
    row.update_usage(Usage(10.0, 5_000_000), now=100.0)
    assert row.cells(100.0)["CPU %"] == ""
    row.update_usage(Usage(11.5, 1_181_116_006), now=101.0)
    assert (row.cells(101.0)["CPU %"], row.cells(101.0)["RSS"]) == ("150", "1.1 GiB")


def test_samples_a_second_are_of_the_last_seconds_and_fade_when_nothing_comes():
    row = InstanceRow(0, "vm")
    for second in range(20):
        row.update_report(
            Report(second, second * 100 if second < 10 else 1000 + (second - 10) * 300, math.nan), float(second)
        )
    assert row.rate(19.0) == pytest.approx(300)
    assert row.rate(29.0) == pytest.approx(300 * 6 / 16)
    assert row.cells(19.0)["loss"] == ""
    assert row.cells(19.0)["step"] == "19"


def test_samples_that_were_not_reported_are_not_shown():
    row = InstanceRow(0, "vm")
    row.update_report(Report(1, 0, 0.5), 1.0)
    row.update_report(Report(2, 0, 0.25), 2.0)
    assert row.rate(2.0) is None
    assert row.cells(2.0)["loss"] == "0.25"


def test_the_table_fits_the_terminal():
    for columns, lines in [(100, 24), (40, 10), (20, 5), (300, 100)]:
        picture = (
            ProgressTable(rows(64), started_at=0.0).render(61.0, columns=columns, lines=lines, color=False).decode()
        )
        assert len(picture.splitlines()) < lines
        assert max(map(len, picture.splitlines())) <= columns
    assert "01:01, 64 running" in picture


def test_where_not_all_fit_those_in_trouble_are_shown():
    table = ProgressTable(rows(64), started_at=0.0)
    table.rows[50].state = "failed (3)"
    text = table.render(1.0, columns=100, lines=10, color=False).decode()
    assert "failed (3)" in text
    assert "... and 58 more" in text


def test_columns_of_which_nothing_is_known_are_left_out():
    table = ProgressTable(rows(2), started_at=0.0)
    assert "loss" not in table.render(1.0, columns=100, lines=24, color=False).decode()
    table.rows[1].update_report(Report(7, 0, 0.125), 1.0)
    assert "0.125" in table.render(1.0, columns=100, lines=24, color=False).decode()


class Terminal:
    """A minimal terminal emulator: all lines that its user sees, including those scrolled away."""

    def __init__(self) -> None:
        self.lines, self.at, self.column = [""], 0, 0

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[^\x1b]", text):
            if part == "\n":
                self.at, self.lines = self.at + 1, self.lines + [""] * (self.at + 1 == len(self.lines))
            elif part == "\r":
                self.column = 0
            elif part[0] == "\x1b" and part.endswith("A"):
                self.at -= int(part[2:-1])
                assert self.at >= 0
            elif part == "\x1b[J":
                self.lines[self.at :] = [self.lines[self.at][: self.column]]
            elif not part.startswith("\x1b"):
                line = self.lines[self.at]
                self.lines[self.at] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1


PROGRAM = str(PROGRAMS / "poprun_py/reporting_training.py")


def on_a_terminal(argv: list[str], environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run a command on a terminal of 24 x 100; return its exit code and its output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    pieces, end = [], time.monotonic() + 120
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        while time.monotonic() < end:
            try:
                pieces.append(os.read(master, 65536).decode())
            except OSError:  # no process writes
                break
        code = process.wait(60)
    os.close(master)
    return code, pieces


def test_on_a_terminal_the_view_stays_below_the_lines_and_goes_in_the_end():
    folder = os.path.dirname(sys.executable)
    environment = os.environ | {"NO_COLOR": "", "TERM": "xterm-256color", "PATH": f"{folder}:{os.environ['PATH']}"}
    argv = [f"{folder}/poprun-py", "--num-instances", "2", sys.executable, PROGRAM]
    code, pieces = on_a_terminal(argv, environment)
    terminal, views = Terminal(), []
    for piece in "".join(pieces).split("\x1b[?7h"):  # every drawing ends with this
        terminal.feed(piece)
        views.append(list(terminal.lines))
    assert code == 1
    shown = [line for line in terminal.lines if "line" in line]
    said = [[line for line in shown if f"[1,{rank}]<stdout>" in line] for rank in range(2)]
    for rank, lines in enumerate(said):  # the first to fail ends the other, wherever it is
        assert lines == [f"[1,{rank}]<stdout>:line {step}" for step in range(len(lines))]
    assert max(map(len, said)) == 30
    assert all(
        f"\x1b[38;5;{color}m[1,{rank}]<stdout>:\x1b[39mline" in "".join(pieces) for rank, color in [(0, 69), (1, 136)]
    )
    assert not any("running" in line for line in terminal.lines)
    assert "ValueError: in the end" in terminal.lines[-2]
    pictures = ["\n".join(table[-5:]) for table in views if "samples/s" in "".join(table)]
    assert len(pictures) > 5
    assert re.search(
        r"poprun-py  00:\d\d, 2 running, [\d,]+ samples/s -+\ninstance +host +pid +state +CPU % +RSS", pictures[-2]
    )
    assert re.search(r"\n +1 +\S+ +\d+ +running +\d+ +\d+ MiB .* \d+ +0\.\d+ +\d+ *\n", pictures[-2] + "\n")


def test_elsewhere_nothing_is_drawn(launch):
    code, out, err = launch("--progress", "auto", "sleep", "1.5").finish()
    assert (code, out, err) == (0, b"", b"")


def test_plain_lines_tell_the_same():
    table = ProgressTable(rows(2), started_at=0.0)
    table.rows[0].update_usage(Usage(1.0, 5 * 2**20), 1.0)
    assert list(table.plain_lines(75.0)) == [
        "poprun-py  01:15, 2 running",
        "    instance 0 running: host vm, pid 100, RSS 5 MiB, NUMA 0",
        "    instance 1 running: host vm, pid 101, NUMA 0",
    ]


def test_a_narrow_terminal_shows_the_state_and_what_the_program_reports():
    [row] = known = rows(1)
    row.host, row.pid, row.state, row.nodes = "a-host-with-a-long-name.example.org", 4194303, "failed (137)", "0-1"
    row.update_usage(Usage(0.5, 3 << 30), 1.0)
    row.update_usage(Usage(1.5, 3 << 30), 2.0)
    row.update_report(Report(123456, 0, 0.25), 1.0)
    row.update_report(Report(123457, 64000, 0.25), 2.0)
    text = ProgressTable(known, started_at=0.0).render(2.0, columns=80, lines=24, color=False).decode()
    assert all(word in text for word in ("failed (137)", "123,457", "0.25", "samples/s"))
    assert "..." not in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


@pytest.mark.parametrize("progress", ["on", "off"])
def test_a_terminal_that_closes_ends_the_job_as_a_hangup(progress: str) -> None:
    """No signal is sent here: the terminal does not control the launcher."""
    folder = os.path.dirname(sys.executable)
    master, slave = pty.openpty()
    loop = "while :; do echo line; sleep 0.1; done"
    argv = [f"{folder}/poprun-py", "--progress", progress, "--num-instances", "2", "sh", "-c", loop]
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        os.close(slave)
        seen = b""
        while seen.count(b"line") < 20:
            seen += os.read(master, 65536)
        os.close(master)
        assert process.wait(60) == 128 + signal.SIGHUP
