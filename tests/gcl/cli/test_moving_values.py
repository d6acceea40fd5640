"""Moving values: every element of a frame is the sum over the replicas that have contributed to it."""

from __future__ import annotations

from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from gcl.cli.moving_values import ValueFrame, animated, frames, values_text
from gcl.core.groups import Group
from gcl.errors import ArgumentError
from gcl.explain import main
from gcl.fabric.fabric import Fabric
from gcl.scheduling.schedule import schedule

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")


def explain(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments), env={"GCL_OPTIONS": None})
    assert done.exit_code == 0, done.output
    return done.output


def held(frame: ValueFrame, name: str) -> dict[int, list[str]]:
    return {r.replica: view.cells for r in frame.replicas for view in r.buffers if view.name == name}


def test_the_example_of_the_technical_note() -> None:
    """{1 2 3 4} + {10 20 30 40}."""
    shown = explain("--replicas", "2", "--method", "clockwise_ring", "--values", "--dtype", "int32").split("\n\n")
    assert [line.strip() for line in shown[1].split("\n")[1:]] == [
        "start",
        "replica 0  input 1 2 | 3 4",
        "replica 1  input 10 20 | 30 40",
        "exchange 1 of 1",
        "replica 0  sends 3 4 to 1    adds 1 2 + 10 20  output 11 22",
        "replica 1  sends 10 20 to 0  adds 30 40 + 3 4  output 33 44",
    ]
    assert [line.strip() for line in shown[2].split("\n")[4:6]] == [
        "exchange 1 of 1",
        "replica 0  sends 11 22 to 1  output 11 22 | 33 44",
    ]


@pytest.mark.parametrize(("replicas", "domains"), [(1, 1), (2, 1), (3, 1), (8, 1), (8, 2)])
def test_an_all_reduce_ends_with_the_sum(replicas: int, domains: int) -> None:
    pictures = frames(schedule("all_reduce", Fabric(replicas, domains=domains), 9, itemsize=4))
    ones = int("1" * replicas)
    final = {r.replica: view for r in pictures[-1].replicas for view in r.buffers if view.name == "output"}
    for view in final.values():
        assert [value for value, count in zip(view.values, view.counts, strict=True) if count] == [
            (at + 1) * ones for at in range(9)
        ]
        assert set(view.counts) <= {0, replicas}


@pytest.mark.parametrize(("collective", "width"), list(product(COLLECTIVES, (1, 2))))
def test_digits_and_counts_agree(collective: str, width: int) -> None:
    """In each frame of each collective, the digits of a value come from as many replicas as its count."""
    pictures = frames(schedule(collective, Fabric(4, width), 4, itemsize=4))
    assert len(pictures) > 1
    for frame in pictures:
        for view in (view for replica in frame.replicas for view in replica.buffers):
            digits = [sum(digit != "0" for digit in str(value)) for value in view.values]
            assert digits == list(np.where(view.counts, view.counts, 0))


def test_groups_show_the_first_one() -> None:
    pictures = frames(schedule("all_reduce", Fabric(4), 2, itemsize=4, group=Group.consecutive(4, 2)))
    assert {r.replica for frame in pictures for r in frame.replicas} == {0, 1}
    assert held(pictures[0], "input") == {0: ["1", "2"], 1: ["10", "20"]}


def test_the_picture_shows_one_frame_at_a_time() -> None:
    pictures = frames(schedule("all_reduce", Fabric(4), 8, itemsize=4))
    root = ElementTree.fromstring(animated(pictures, "title"))
    groups = [element for element in root.iter() if element.tag.endswith("}g")]
    assert len(groups) == len(pictures)
    shown = [next(iter(group)).get("values", "").split(";") for group in groups]
    wanted = [
        ["inline" if at == number else "none" for at in range(len(pictures))] for number in range(len(pictures))
    ]
    assert shown == wanted
    assert "1111" in {text.text for text in root.iter() if text.tag.endswith("text")}
    assert values_text(pictures).count("exchange") >= 2


@pytest.mark.parametrize(
    ("replicas", "elements"),
    [(17, 4), (4, 65), (4, 0)],
)
def test_too_many_values_are_refused(replicas: int, elements: int) -> None:
    with pytest.raises(ArgumentError, match=r"at most 16 replicas.*--bytes.*1 to 64"):
        frames(schedule("all_reduce", Fabric(2 * replicas if replicas % 2 else replicas), elements, itemsize=4))


def test_too_many_values_are_one_message() -> None:
    done = CliRunner().invoke(main, ["--values", "--bytes", "1e6"], env={"GCL_OPTIONS": None})
    assert (done.exit_code, "cannot be followed" in done.output, "Traceback" in done.output) == (2, True, False)
