"""scripts/same-bits: the quick part, and the table of differences, failures and settings that cannot run."""

import json
import subprocess
import sys

import pytest

from tests.golden import table as tables
from tests.golden.catalogue import PROGRAMS
from tests.golden.op_digests import first_difference
from tests.golden.runs import Outcome, run_part
from tests.golden.settings import KERNELS, NATIVE, SETTINGS, Setting
from tests.helpers.mpi_jobs import ROOT

MLP, SPREAD = "popart: mlp", "popart: replicas"
GOLDEN = {MLP: {"losses": "1", "weights": "2"}, SPREAD: {"losses": "3", "weights": "4"}}


def same_bits(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.golden", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


def test_kernels_for_avx2_give_the_digests_that_any_processor_gives():
    ended = same_bits("--quick", "--settings", "kernels for x86-64-v3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ran = sum(program.quick and not program.missing for program in PROGRAMS.values())
    assert f"kernels for x86-64-v3             {ran} are the same" in ended.stdout


def test_names_that_nothing_has_are_refused_and_all_are_listed():
    assert same_bits("--only", "no such program").returncode == 2
    listed = same_bits("--list").stdout.splitlines()
    assert listed == [
        *(f"setting  {setting.name}" for setting in SETTINGS),
        *(f"program  {name}" for name in PROGRAMS),
    ]


def test_a_table_shows_what_differs_what_fails_and_what_cannot_run():
    alien = Setting("alien", flags=("alien_instructions",))
    outcomes = {
        NATIVE.name: Outcome(GOLDEN, {}),
        KERNELS[0].name: Outcome({MLP: {"losses": "1", "weights": "0"}}, {SPREAD: "ValueError: no"}),
        "spread": Outcome({SPREAD: {"losses": "0", "weights": "0"}}, {}),
    }
    settings = [NATIVE, KERNELS[0], Setting("spread", instances=2), alien]
    text, is_same = tables.table([MLP, SPREAD], settings, outcomes, GOLDEN)
    rows = [line.split() for line in text.splitlines()]
    assert rows[1:3] == [["popart:", "mlp", "=", "W", ".", "x"], ["popart:", "replicas", "=", "!", "LW", "x"]]
    assert not is_same
    for said in ("2 are the same", "2 of 2 differ", "1 of 1 differ", "has no alien_instructions", "ValueError: no"):
        assert said in text
    changed = {setting.name: outcomes[KERNELS[0].name] for setting in (NATIVE, KERNELS[0])}
    assert tables.table([MLP], [NATIVE, KERNELS[0]], changed, GOLDEN)[0].splitlines()[1].split()[2:] == ["w", "w"]
    assert tables.table([MLP, SPREAD], [NATIVE, alien], {NATIVE.name: Outcome(GOLDEN, {})}, GOLDEN)[1]


@pytest.mark.parametrize(
    ("digests", "code", "error"),
    [
        ("11", 0, ""),
        ("12", 0, "the instances have different digests"),
        ("1", 0, "1 of 2 results: killed"),
        ("", 1, "0 of 2 results: killed"),
        ("11", 1, "exit code 1: killed"),
    ],
)
def test_every_instance_must_give_the_digests_and_end_without_an_error(digests, code, error, monkeypatch):
    lines = [
        f"[{instance}] " + json.dumps({"program": SPREAD, "digests": digest})
        for instance, digest in enumerate(digests)
    ]
    ended = subprocess.CompletedProcess([], code, "\n".join(lines), "killed")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: ended)
    assert run_part(Setting("spread", instances=2), [SPREAD]) == (
        Outcome(errors={SPREAD: error}) if error else Outcome({SPREAD: "1"})
    )


def test_settings_do_not_inherit_from_each_other(monkeypatch):
    monkeypatch.setenv("IPU_EMU_PROCESSOR", "haswell")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    assert not NATIVE.environment.keys() & {"IPU_EMU_PROCESSOR", "OPENBLAS_CORETYPE", "NUMBA_CPU_NAME"}
    assert KERNELS[0].environment["IPU_EMU_PROCESSOR"] == "x86-64-v3"


def test_the_first_op_that_differs_is_named():
    first, other = (
        ["1 Op MatMul (y)", "2 Op Exp (z)", "3 Op Sum (s)"],
        ["1 Op MatMul (y)", "7 Op Exp (z)", "8 Op Sum (s)"],
    )
    assert first_difference(first, other) == "1 results are equal, then Op Exp (z)"
    assert first_difference(first, first[::-1]) == "the results of all 3 ops are equal"
    assert (
        first_difference([*first, "4 Op Exp (z)"], [*first, "5 Op Exp (z)"]) == "3 results are equal, then Op Exp (z)"
    )
