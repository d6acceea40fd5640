"""Completion: the candidates for each kind of word; and the scripts of each shell, where it is installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poprun_py.cli import main
from poprun_py.cli.completion import complete, completion_script
from poprun_py.options.option_table import OPTIONS

SHELLS = ("bash", "zsh", "fish")

#: A command line to complete, some words that must be offered, and some that must not.
QUESTIONS = [
    ("poprun-py --num-i", {"--num-instances", "--num-ilds"}, {"--num-replicas"}),
    ("poprun-py --process-placement spr", {"spreadnuma", "spreadcore"}, {"disabled"}),
    ("poprun-py --num-instances 2 --format js", {"json"}, {"text"}),
    ("poprun-py --hostfile hos", {"hosts.txt"}, set()),
    ("poprun-py --num-instances 2 cat hos", {"hosts.txt"}, {"hostname"}),
    ("poprun-py -v -- cat --num-rep", set(), {"--num-replicas"}),
    ("poprun-py --log-dir fol", {"folder/"}, {"hosts.txt"}),
    ("poprun-py A=1 --num-instances 2 hostnam", {"hostname"}, set()),
]


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "hosts.txt").write_text("")
    (tmp_path / "folder").mkdir()
    for shell in SHELLS:
        (tmp_path / shell).write_text(completion_script(shell))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def words_of(line: str) -> list[str]:
    completion = complete(shlex.split(line) + [""] * line.endswith(" "))
    assert completion.kind == "words", completion
    return [word for word, _ in completion.candidates]


def test_every_option_is_offered_with_its_description():
    offered = dict(complete(["--"]).candidates)
    for option in OPTIONS:
        for name in option.spellings:
            assert option.help.startswith(offered[f"--{name}"]), name
    assert {f"-{option.letter}" for option in OPTIONS if option.letter} <= set(words_of("-"))


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.choices and option.read], ids=lambda o: o.name
)
def test_every_choice_is_offered(option):
    for name in option.spellings:
        assert words_of(f"--{name} ") == list(option.choices)
        assert words_of(f"--{name} = ") == list(option.choices)
        assert words_of(f"--{name} =") == list(option.choices)
        assert words_of(f"--{name}={option.choices[-1]}") == [option.choices[-1]]


@pytest.mark.parametrize(
    ("line", "kind", "number"),
    [
        ("", "program", 0),
        ("pyth", "program", 0),
        ("--num-instances 2 pyth", "program", 0),
        ("--num-instances = 2 pyth", "program", 0),
        ("--num-instances=2 -v pyth", "program", 0),
        ("-v -- --pyth", "program", 0),
        ("A=1 pyth", "program", 0),
        ("A = 1 pyth", "program", 0),
        ("--nonesuch pyth", "program", 0),
        ("python tra", "arguments", 0),
        ("--num-inst 2 python tra", "arguments", 2),
        ("-v -- python --num-i", "arguments", 2),
        ("- python tra", "arguments", 0),
        ("--hostfile ho", "files", 0),
        ("--hostfile=ho", "files", 11),
        ("--mpi /op", "files", 0),
        ("--log-dir ", "folders", 0),
        ("-H h", "hosts", 0),
        ("-Hh", "hosts", 2),
        ("--vipu-server-host=", "hosts", 19),
        ("--num-instances ", "words", 0),
        ("--dry-run=", "words", 10),
    ],
)
def test_completion_depends_on_the_words_before(line, kind, number):
    completion = complete(shlex.split(line) + [""] * (line.endswith(" ") or not line))
    assert (completion.kind, completion.number) == (kind, number)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell, capsys):
    assert main(["--completion", shell]) == 0
    assert capsys.readouterr().out == completion_script(shell)


def test_the_program_answers_the_scripts(capsys, monkeypatch):
    monkeypatch.setenv("_POPRUN_PY_COMPLETE", "1")
    assert main(["--format=j"]) == 0
    assert capsys.readouterr().out == "words\n9\njson\t\n"


@pytest.mark.parametrize("shell", [pytest.param(name, marks=needs(name)) for name in SHELLS])
def test_the_shell_understands_the_script(shell, folder):
    done = subprocess.run([shell, "-n", shell], cwd=folder, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def answers(command: list[str]) -> list[set[str]]:
    """The candidates for each question: words before a tab, in blocks that "===" ends."""
    done = subprocess.run(
        [*command, *(line for line, _, _ in QUESTIONS)], capture_output=True, text=True, timeout=250, check=True
    )
    assert done.stderr == ""
    blocks = done.stdout.split("===\n")[:-1]
    return [{line.partition("\t")[0] for line in block.splitlines()} for block in blocks]


def check(blocks: list[set[str]]) -> None:
    for (line, offered, not_offered), block in zip(QUESTIONS, blocks, strict=True):
        block |= {f"{word}/" for word in block if word == "folder"}  # bash leaves the slash to readline
        assert offered <= block, line
        assert not not_offered & block, line


@needs("bash")
def test_bash(folder):
    script = """source ./bash; for line in "$@"; do
        read -ra COMP_WORDS <<< "$line"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _poprun_py
        printf "%s\\n" "${COMPREPLY[@]}"; echo ===
    done"""
    check(answers(["bash", "--norc", "-c", script, "bash"]))


@needs("bash")
def test_bash_splits_at_the_equals_sign_or_does_not(folder):
    script = """source ./bash
    COMP_WORDS=(poprun-py --format = js); COMP_CWORD=3; _poprun_py; echo "${COMPREPLY[@]}"
    COMP_WORDS=(poprun-py --format =); COMP_CWORD=2; _poprun_py; echo "${COMPREPLY[@]}"
    COMP_WORDS=(poprun-py --format=js); COMP_CWORD=1; _poprun_py; echo "${COMPREPLY[@]}"
    COMP_WORDS=(poprun-py --hostfile=ho); COMP_CWORD=1; _poprun_py; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.splitlines() == ["json", "text json", "--format=json", "--hostfile=hosts.txt"]


@needs("fish")
def test_fish(folder):
    check(answers(["fish", "--no-config", "-c", "source ./fish; for l in $argv; complete -C $l; echo ===; end"]))


@needs("fish")
def test_fish_completes_a_value_behind_the_equals_sign(folder):
    script = "source ./fish; complete -C 'poprun-py --format=js'; complete -C 'poprun-py --hostfile=ho'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=250, check=True
    )
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["--format=json", "--hostfile=hosts.txt"]


@needs("zsh")
def test_zsh(folder):
    """The completion of a line by TAB, in a separate terminal."""
    with Terminal(["zsh", "-f", "-i"]) as zsh:
        zsh.type("PS1=; autoload -Uz compinit; compinit -D -u; source ./zsh; unsetopt beep; echo rea''dy\n", "ready")
        for line, completed in (
            ("--num-inst", "--num-instances"),
            ("--process-placement spreadn", "spreadnuma"),
            ("--num-instances 2 --format js", "json"),
            ("--format=js", "--format=json"),
            ("--hostfile=hos", "--hostfile=hosts.txt"),
            ("--log-dir fol", "folder/"),
            ("--num-instances 2 cat hos", "hosts.txt"),
            ("A=1 -v -- cat hos", "hosts.txt"),
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
