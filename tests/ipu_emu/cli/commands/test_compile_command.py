"""ipu-emu compile: the list of passes, and the result of each pass."""

from __future__ import annotations

import json

import pytest

from ipu_emu.cli.output import printing
from ipu_emu.compiler.pipeline import PASSES
from tests.ipu_emu.helpers.commands import ipu_emu, printed


def test_the_list_has_a_line_for_each_pass() -> None:
    said = [line.split() for line in printed("compile --list").splitlines()]
    assert [words[1] for words in said] == [row.name for row in PASSES]
    assert all(len(words) > 3 for words in said)


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        ("--stop-after expand", "forward   IPU 0  stage 0  y = MatMul(x, w)"),
        ("--stop-after differentiate", "Gradient___w = MatMulT("),
        ("--stop-after lower", "  Compute y = MatMul(x, w)"),
        ("", "persistent"),
    ],
)
def test_the_output_of_a_pass(model: str, words: str, shows: str) -> None:
    assert any(shows in line for line in printed(f"compile {model} --loss loss {words}").splitlines())


def test_the_plan_has_a_line_for_each_tensor() -> None:
    said = printed("compile mlp --ipus 2 --schedule grouped --accumulation 4 --replicas 2").split("\n\n")
    regions, places = ([line.split() for line in part.strip().splitlines()[1:]] for part in said[-2:])
    assert ["bucket:FLOAT16:all:0:1", "1", "10.1", "KiB"] in [words[:4] for words in regions]
    (weights,) = [words for words in places if words[-1] == "weights2"]
    assert weights[:2] == ["persistent:1", "1"]
    assert weights[3:5] == ["10.0", "KiB"]
    starts = {line.index(" KiB") for line in said[-2].splitlines() if " KiB" in line}
    assert len(starts) == 1


def test_a_pass_that_the_options_do_not_need(model: str) -> None:
    said = printed(f"compile {model} --inference --stop-after clip-gradients")
    assert "after clip-gradients (limit the norms of groups of gradients), which these options do not need" in said
    assert "Gradient___" not in said


def test_a_pass_that_there_is_not(model: str) -> None:
    done = ipu_emu(f"compile {model} --stop-after fold")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "Error: 'fold' is not a pass of the compiler; ipu-emu compile --list names all\n"
    assert "pass of the compiler; did you mean 'lower'?" in ipu_emu(f"compile {model} --stop-after lowr").stderr


@pytest.mark.parametrize("words", ["--list --format json", "--format json --list"])
def test_the_list_as_json(words: str) -> None:
    said = json.loads(printed(f"compile {words}"))
    assert said == [{"name": row.name, "summary": row.summary} for row in PASSES]


def test_json(model: str) -> None:
    said = json.loads(printed(f"compile {model} --inference --stop-after lower --format json"))
    assert said["passes"][-1] == "lower"
    assert said["form"] == "program"
    assert "HostLoad x" in said["listing"]


def test_lines_are_broken_between_words_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "compile transformer --ipus 2 --schedule popart --accumulation 8 --stop-after lower"
    data = printed(command)
    assert max(map(len, data.splitlines())) > 80
    monkeypatch.setattr(printing, "terminal_width", lambda: 80)
    shown = printed(command)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == data.split()
    broken = [line for line in shown.splitlines() if line.startswith(" " * 8) and not line.startswith(" " * 9)]
    assert len(broken) > 10  # continued lines are indented two more than the instruction
