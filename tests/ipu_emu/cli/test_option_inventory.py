"""Inventory of the commands' options: a test gives each, and each in the tables changes what its command prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache

import click
import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from tests.helpers.inventory_page import assert_counts
from tests.helpers.mpi_jobs import ROOT

BERT = "bert-base --ipus 4 --replicas 16 --batch 2 --accumulation 48 --optimiser adam"
IMAGES = "resnet50 --replicas 16 --batch 4 --accumulation 4"
#: Options of a job that estimate, predict and scale share: (the job before, the option).
JOB = {
    "--length": (BERT, "--length 64"),
    "--vocabulary": (BERT, "--vocabulary 90000"),
    "--masked": (BERT, "--masked 128"),
    "--size": (IMAGES, "--size 128"),
    "--packing": (BERT, "--packing 1.7"),
    "--layers": (BERT, "--layers 0,4,4,4"),
    "--embedding-ipu": (BERT, "--embedding-ipu 1"),
    "--input-dtype": (f"{IMAGES} --no-overlap-io", "--input-dtype float"),
    "--overlap-io": (IMAGES, "--no-overlap-io"),
    "--stash-dtype": (BERT, "--stash-dtype float"),
    "--merge-collectives": (IMAGES, "--no-merge-collectives"),
    "--host-rate": (f"{IMAGES} --no-overlap-io", "--host-rate 1"),
    "--release": (BERT, "--release 2.1"),
}
SCALE = "resnet50 --batch 4 --accumulation 4 --sizes 16,32"
SCALED_BERT = "bert-base --ipus 4 --batch 2 --accumulation 48 --optimiser adam --sizes 16,32"
#: (command, option) -> (arguments before, what is added).
CHANGES = {
    **{("estimate", name): case for name, case in JOB.items()},
    ("estimate", "--hosts"): (f"{IMAGES} --no-overlap-io --host-rate 100MB", "--hosts 2"),
    ("predict", "--vocabulary"): JOB["--vocabulary"],
    ("predict", "--stash-dtype"): JOB["--stash-dtype"],
    **{
        ("scale", name): (f"{job} --sizes 16,32".replace("--replicas 16", ""), added)
        for name, (job, added) in JOB.items()
    },
    ("scale", "--ipus"): ("bert-base --sizes 16,32 --batch 2 --accumulation 8", "--ipus 2"),
    ("scale", "--global-batch"): ("resnet50 --batch 4 --sizes 16,32", "--global-batch 512"),
    ("scale", "--inference"): (SCALE, "--inference"),
    ("scale", "--dtype"): (SCALE, "--dtype float"),
    ("scale", "--optimiser"): (SCALE, "--optimiser momentum"),
    ("scale", "--schedule"): (SCALED_BERT, "--schedule sequential"),
    ("scale", "--off-chip"): (SCALED_BERT, "--off-chip states"),
    ("scale", "--shared"): (f"{SCALED_BERT} --off-chip states", "--shared states"),
    ("scale", "--calibration"): (SCALE, "--calibration none"),
    ("clock", "--placement"): ("transformer --ipus 2 --schedule grouped --accumulation 8", "--placement 0,2"),
    ("clock", "--sync"): ("mlp --ipus 4 --schedule grouped --accumulation 8", "--sync SinglePipeline"),
    ("clock", "--selection-order"): (
        "mlp --ipus 4 --schedule grouped --accumulation 8", "--selection-order hoof",
    ),
    ("schedule", "--batch-serialization"): (
        "--kind sequential --stages 2 --count 2 --mapping 0,0", "--batch-serialization 3",
    ),
    ("schedule", "--selection-order"): ("--stages 4 --count 16", "--selection-order hoof"),
    ("schedule", "--barrier"): ("--stages 4 --count 16 --forward 1,2,1,1", "--barrier none"),
}  # fmt: skip
#: (command, option) -> (arguments, words of the message).
REFUSED = {
    ("estimate", "--instances"): (f"{BERT} --instances 3", "--instances 3 does not divide 16 replicas"),
    ("scale", "--samples"): (f"{SCALE} --samples 1e6", "--samples is of ipu-emu predict"),
    ("scale", "--epochs"): (f"{SCALE} --epochs 2", "--epochs is of ipu-emu predict"),
}
#: Options that tests of the command give in words that are made there.
SHOWN = {
    ("calibrate", "--leave-one-out"): "ipu_emu/predict/calibration/test_fit.py",
    ("hostio", "--replicas-per-instance"): "ipu_emu/hostio/probe/test_program_runs.py",
    ("hostio", "--timeout"): "ipu_emu/hostio/probe/test_program_runs.py",
}


@cache
def printed(command: str, words: str) -> str:
    done = CliRunner().invoke(main, [command, *shlex.split(words)])
    assert done.exit_code == 0, done.output
    return done.output


def options(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """(name of a command, the spellings of one of its options)"""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from options(inner, (*path, name))
    for option in command.params:
        if isinstance(option, click.Option):
            yield (path[-1] if path else "", [*option.opts, *option.secondary_opts])


@cache
def texts() -> tuple[str, ...]:
    return tuple(
        file.read_text() for file in (ROOT / "tests").rglob("*.py") if file.name != "test_option_inventory.py"
    )


def is_given(command: str, names: list[str]) -> bool:
    """Whether a test that names the command has the option among its words."""
    patterns = [re.compile(rf"{re.escape(name)}(?![\w-])") for name in names]
    return any(command in text and any(pattern.search(text) for pattern in patterns) for text in texts())


@pytest.mark.parametrize("row", SHOWN, ids=" ".join)
def test_a_row_names_a_test(row: tuple[str, str]) -> None:
    assert row[1].removeprefix("--").replace("-", "_") in (ROOT / "tests" / SHOWN[row]).read_text()


def test_every_option_is_given_by_a_test() -> None:
    tables = CHANGES.keys() | REFUSED.keys() | SHOWN.keys()
    rows = [(command, names) for command, names in options(main) if not tables & {(command, name) for name in names}]
    assert len(rows) > 150
    assert [f"{command} {names[0]}" for command, names in rows if not is_given(command, names)] == []
    assert_counts("options of `ipu-emu`", len(list(options(main))) - len(REFUSED), len(REFUSED), 0)


@pytest.mark.parametrize("row", CHANGES, ids=" ".join)
def test_an_option_changes_what_is_printed(row: tuple[str, str]) -> None:
    before, added = CHANGES[row]
    assert printed(row[0], before) != printed(row[0], f"{before} {added}")


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_an_option_is_refused(row: tuple[str, str]) -> None:
    words, text = REFUSED[row]
    done = CliRunner().invoke(main, [row[0], *shlex.split(words)])
    assert done.exit_code == 2
    assert text in done.output
