"""Completion: each shell is asked what it would offer; where it is absent, the script is only looked at."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from poprun_py.cli import main
from poprun_py.cli.completion import completion_script
from poprun_py.options.option_table import OPTIONS

#: A command line to complete, some words that must be offered, and some that must not.
QUESTIONS = [
    ("poprun-py --num-i", {"--num-instances", "--num-ilds"}, {"--num-replicas"}),
    ("poprun-py --process-placement spr", {"spreadnuma", "spreadcore"}, {"disabled"}),
    ("poprun-py --num-instances 2 --format js", {"json"}, {"text"}),
    ("poprun-py --hostfile hos", {"hosts.txt"}, set()),
    ("poprun-py --num-instances 2 cat hos", {"hosts.txt"}, {"hostname"}),
    ("poprun-py -v -- cat --num-rep", set(), {"--num-replicas"}),
]


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "hosts.txt").write_text("")
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / shell).write_text(completion_script(shell))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_and_knows_every_option(shell, capsys):
    assert main(["--completion", shell]) == 0
    text = capsys.readouterr().out
    for option in OPTIONS:
        for name in option.spellings:
            assert re.search(rf"(--|-l ){name}\b", text), name
        assert all(choice in text for choice in option.choices)


@pytest.mark.parametrize("shell", [pytest.param(name, marks=needs(name)) for name in ("bash", "zsh", "fish")])
def test_the_shell_understands_the_script(shell, folder):
    done = subprocess.run([shell, "-n", shell], cwd=folder, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs("bash")
@pytest.mark.parametrize(("line", "offered", "not_offered"), QUESTIONS)
def test_bash(folder, line, offered, not_offered):
    script = 'source ./bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _poprun_py; printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-c", script, "bash", *line.split()]
    answers = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True).stdout.split()
    assert offered <= set(answers)
    assert not not_offered & set(answers)


@needs("fish")
@pytest.mark.parametrize(("line", "offered", "not_offered"), QUESTIONS)
def test_fish(folder, line, offered, not_offered):
    command = ["fish", "--no-config", "-c", "source ./fish; complete -C $argv[1]", line]
    text = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True).stdout
    answers = {answer.partition("\t")[0] for answer in text.splitlines()}
    assert offered <= answers
    assert not not_offered & answers


@needs("zsh")
def test_zsh(folder):
    """In a terminal of its own: what TAB makes of a line."""
    with Terminal(["zsh", "-f", "-i"]) as zsh:
        zsh.type("PS1=; autoload -Uz compinit; compinit -D -u; source ./zsh; unsetopt beep; echo rea''dy\n", "ready")
        for line, completed in (
            ("--num-inst", "--num-instances"),
            ("--process-placement spreadn", "spreadnuma"),
            ("--num-instances 2 --format js", "json"),
            ("--num-instances 2 cat hos", "hosts.txt"),
        ):
            zsh.type(f"poprun-py {line}\t", completed)
            zsh.type("\x15echo don''e\n", "done")


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.descriptor = pty.fork()
        if not self.pid:
            os.environ["TERM"] = "dumb"
            os.execvp(argv[0], argv)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)

    def type(self, keys: str, answer: str) -> None:
        """Press ``keys`` and wait until ``answer`` is shown."""
        os.write(self.descriptor, keys.encode())
        seen, end = "", time.monotonic() + 60
        while answer not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x08]", "", seen):
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{answer!r} was not shown after {keys!r}, but {seen!r}"
            seen += os.read(self.descriptor, 4096).decode(errors="replace")
