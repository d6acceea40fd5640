"""Plan of an experiment: configurations for a machine, commands, hosts, and mistakes."""

from __future__ import annotations

import sys

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.experiment.plan import Configuration, Plan, chosen_sizes


def names(cores: int) -> str:
    return " ".join(f"{instances}x{replicas}" for instances, replicas in chosen_sizes(cores))


def test_six_configurations_for_any_machine() -> None:
    assert names(1) == names(2) == names(4) == "1x1 1x2 2x2 1x4 2x4 4x4"
    assert names(16) == "1x1 1x4 4x4 1x16 4x16 16x16"
    assert chosen_sizes(2, few=True) == [(1, 1), (2, 2)]


def test_accumulations_need_their_place_in_the_arguments() -> None:
    with_place = Plan.of(["train.py", "--ga={accumulation}"], "", (1, 2, 4))
    names = [configuration.name for configuration in with_place.configurations]
    assert names == ["1x1", "1x1 GA 2", "1x1 GA 4", "2x2", "2x2 GA 2", "2x2 GA 4"]
    assert len(Plan.of(["train.py"], "", (1, 2, 4)).configurations) == 6


def test_commands() -> None:
    plan = Plan.of(["train.py", "--ga={accumulation}", "{replicas}"], "1x1,2x4", (1, 2), launcher=("--host", "a,b,c"))
    command = plan.command(Configuration(4, 2, 2), ["--trace", "x"])
    assert command[1:7] == ["-m", "poprun_py", "--num-instances", "2", "--num-replicas", "4"]
    assert command[7:] == ["--trace", "x", "--host", "a,b", sys.executable, "train.py", "--ga=2", "4"]
    assert "a" in plan.command(Configuration(1, 1))  # no more hosts than instances


@pytest.mark.parametrize("written", [("--host", "a,b,c"), ("--host=a,b,c",), ("-H", "a,b,c")])
def test_hosts_bring_their_cores(written: tuple[str, ...]) -> None:
    plan = Plan(("x",), (Configuration(1, 1), Configuration(2, 2)), launcher=("--tag-output", *written), cores=2)
    assert [plan.hosts(count) for count in (1, 2, 8)] == [1, 2, 3]
    assert [plan.processors(lanes, 2) for lanes in (1, 4, 8)] == [1, 4, 4]


def test_mistakes() -> None:
    sizes = (Configuration(1, 1), Configuration(2, 2))
    for program, some, options, said in (
        ((), sizes, {}, "--run needs a program"),
        (("a",), sizes[:1], {}, "--sizes has one configuration"),
        (("a",), sizes, {"timeout": float("nan")}, "--timeout nan is not possible"),
        (("a",), sizes, {"launcher": ("--host", "n[0-1]")}, r"--launcher n\[0-1\]: a range of hosts"),
    ):
        with pytest.raises(EmulatorError, match=said):
            Plan(program, some, **options)  # type: ignore[arg-type]
    for wrong in ("2x3", "0x1", "a", "1", "1x0"):
        with pytest.raises(EmulatorError, match=f"--sizes {wrong}: not a list"):
            Plan.of(["a"], wrong, (1,))
