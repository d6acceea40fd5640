"""Every kind of hostility: a few trials with a fixed seed; scripts/hostile does many with others."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.mpi_jobs import ROOT
from tests.hostile.campaign import Campaign
from tests.hostile.kind import Kind, Trial, Unavailable
from tests.hostile.kinds import KINDS

#: Damaged inputs are tried in one process, as most of their time goes into its start.
INPUTS = [kind.name for kind in KINDS if kind.source.startswith("inputs.")]
#: Of the kinds that start jobs, a sample: deaths on one host have a test of their own, test_random_kills.
JOBS = (
    "kills-2-hosts-mpich",
    "strangers-openmpi",
    "two-jobs-mpich",
    "scarce-disk",
    "scarce-shared-memory",
    "scarce-descriptors",
    "scarce-memory",
    "homes",
    "users",
)


def test_some_damaged_inputs_of_each_kind_are_explained() -> None:
    try_some(INPUTS, trials=10)


@pytest.mark.parametrize("name", JOBS)
def test_one_trial_ends_as_promised(name: str) -> None:
    try_some([name], trials=1)


def try_some(names: list[str], trials: int) -> None:
    only = [word for name in names for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.hostile", *only, "--seed", "1", "--trials", str(trials)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    if "skipped" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{trials * len(names)} trials, 0 failures" in done.stdout


@contextmanager
def example(what: str) -> Iterator[Trial]:
    """A kind that does ``what`` if the seed is 3."""
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
def test_a_failure_is_said_with_the_command_that_repeats_it(what: str, trials: int, said: str) -> None:
    kind = Kind(what, "", "test_every_kind:example", what, isolated=False, limit=1.0)
    texts: list[str] = []
    campaign = Campaign([kind], 0, texts.append)
    campaign.repeat(kind, 6)
    (text,) = texts
    assert f"scripts/hostile --only {what} --seed 3 --trials 1\n" in text
    assert said in text
    assert (campaign.counts[what].trials, campaign.counts[what].failures) == (trials, 1)


def test_what_cannot_run_here_is_skipped_with_the_reason() -> None:
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
