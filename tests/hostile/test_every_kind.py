"""Hostile tests: all turns of a quick run of scripts/hostile, and the reports of the campaign.

The seed is fixed, so that every run of the tests tries the same inputs; HOSTILE_SEED sets another. No test depends on
speed.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.mpi_jobs import ROOT
from tests.hostile.campaign import Campaign, Turn, quick_turns
from tests.hostile.kind import Kind, Trial, Unavailable
from tests.hostile.kinds import KINDS

SEED = os.environ.get("HOSTILE_SEED", "1")

TURNS = quick_turns(KINDS)


def together(turns: list[Turn]) -> dict[str, list[str]]:
    """The names of turns by the test that runs them, two at a time.

    Two turns are one kind with either MPI, or kinds that share modules, whose import is slow.
    """
    tests: dict[str, list[str]] = {}
    for turn in turns:
        module, _, _ = turn.kind.source.partition(":")
        subject = turn.kind.source if turn.kind.argument else module
        tests.setdefault(f"{subject}.{turn.number}", []).append(turn.name)
    return tests


@pytest.mark.parametrize("turns", together(TURNS).values(), ids=together(TURNS))
def test_a_turn_of_the_quick_run_ends_as_promised(turns: list[str]) -> None:
    only = [word for name in turns for word in ("--turn", name)]
    # A trial waits most of its time, so two at once take no core from the tests of other workers.
    command = [sys.executable, "-m", "tests.hostile", "--quick", *only, "--seed", SEED, "--workers", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^[\d,]+ trials, 0 failures in \d+ s with seed {SEED}: ", done.stdout, re.MULTILINE)
    if "skipped" in done.stdout:  # some of them; the others ran
        pytest.skip(done.stdout)


def test_the_turns_of_a_quick_run_are_three_minutes_of_two_workers() -> None:
    assert sum(turn.seconds for turn in TURNS) == pytest.approx(360)
    assert {turn.kind for turn in TURNS} == set(KINDS)
    assert sorted(name for names in together(TURNS).values() for name in names) == sorted(turn.name for turn in TURNS)


@contextmanager
def example(what: str) -> Iterator[Trial]:
    """A kind that runs ``what`` if the seed is 3."""
    if what == "absent":
        raise Unavailable("there is none here")

    def trial(dice: random.Random) -> list[str]:
        if dice.random() != Kind(what, "", "").dice(3).random():
            return []
        return {
            "fault": lambda: ["it is not as promised"],
            "exception": lambda: [1 / 0],
            "crash": lambda: [sys.modules["os"]._exit(9)],
            "hang": lambda: [sys.modules["time"].sleep(60)],
        }[what]()

    yield trial


@pytest.mark.parametrize(
    ("what", "trials", "said"),
    [
        ("fault", 6, "it is not as promised"),
        ("exception", 6, "ZeroDivisionError"),
        ("crash", 4, "its process ended with code 9"),
        ("hang", 4, "not over after 1 s"),
    ],
)
def test_a_failure_is_reported_with_the_command_that_repeats_it(what: str, trials: int, said: str) -> None:
    kind = Kind(what, "", "test_every_kind:example", what, isolated=False, limit=1.0)
    texts: list[str] = []
    campaign = Campaign([kind], 0, texts.append)
    campaign.repeat(kind, 6)
    (text,) = texts
    assert f"scripts/hostile --only {what} --seed 3 --trials 1\n" in text
    assert said in text
    assert (campaign.counts[what].trials, campaign.counts[what].failures) == (trials, 1)


def test_kinds_that_cannot_run_here_are_skipped_with_the_reason() -> None:
    texts: list[str] = []
    kind = Kind("absent", "", "test_every_kind:example", "absent", isolated=False)
    campaign = Campaign([kind], 0, texts.append)
    campaign.run(0.1, 1)
    assert texts == ["absent: skipped, there is none here"]
    assert campaign.counts["absent"].trials == 0


def test_time_is_divided_by_shares() -> None:
    kinds = [Kind(name, "", "test_every_kind:example", name, isolated=False) for name in ("fault", "exception")]
    campaign = Campaign(kinds, 10, lambda text: None)
    campaign.run(0.2, 2)
    assert all(count.trials and not count.failures for count in campaign.counts.values())
