"""Parser: PopRun's rules, and all mistakes in one message."""

from __future__ import annotations

import random
import string

import pytest

from poprun_py.errors import UsageError
from poprun_py.options.option_table import OPTIONS
from poprun_py.options.parser import parse


def mistakes(line: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert caught.value.exit_code == 2
    return caught.value.lines


def test_a_bare_program_is_one_instance_with_one_replica():
    options = parse(["echo", "hello"])
    assert (options.program, options.num_instances, options.num_replicas) == (("echo", "hello"), 1, 1)
    assert options.layout.local_replicas == (1,)


@pytest.mark.parametrize(
    "line",
    [
        "--num-instances 2 --num-replicas 4 x",
        "--num-instances=2 --num-replicas=4 x",
        "--num-instance 2 --num-rep=4 x",
        "--num-instances 2 --num-replicas=4 -- x",
        "--num-instances 2 --num-instances 2 --num-replicas 4 x",
    ],
)
def test_spellings_of_the_same_thing(line):
    options = parse(line.split())
    assert (options.num_instances, options.num_replicas, options.program) == (2, 4, ("x",))


def test_parsing_stops_at_the_program():
    options = parse(["--num-instances", "2", "python", "x.py", "--num-instances", "5", "-v", "--nonsense", "--"])
    assert options.num_instances == 2
    assert options.verbosity == 0
    assert options.program == ("python", "x.py", "--num-instances", "5", "-v", "--nonsense", "--")


def test_a_program_may_start_with_a_dash_after_two_dashes():
    assert parse(["--", "--odd"]).program == ("--odd",)
    assert parse(["--", "--", "x", "--"]).program == ("x", "--")


@pytest.mark.parametrize(
    ("line", "verbosity"),
    [("", 0), ("-v", 1), ("--verbose", 1), ("-vv", 2), ("--vv", 2), ("-v -v", 2), ("-v --verb", 2)],
)
def test_verbosity(line, verbosity):
    assert parse([*line.split(), "x"]).verbosity == verbosity


@pytest.mark.parametrize("word", ["yes", "on", "1", "true", "YES", "True", "On"])
@pytest.mark.parametrize("form", ["--print-topology={}", "--print-topology {}", "--print-top {}"])
def test_booleans_take_a_word(word, form):
    assert parse([*form.format(word).split(), "x"]).print_topology


@pytest.mark.parametrize("word", ["no", "off", "0", "false", "NO", "Off"])
def test_booleans_can_be_switched_off(word):
    assert not parse([f"--print-topology={word}", "x"]).print_topology
    assert not parse([f"--dry-run={word}", "x"]).dry_run


def test_without_replicas_every_instance_has_one():
    assert parse(["--num-instances", "4", "x"]).num_replicas == 4


def test_an_option_takes_the_next_word_whatever_it_looks_like():
    assert parse(["--mpi", "--odd", "x"]).mpi == "--odd"


def test_help_and_version_need_no_program_and_forgive():
    assert parse(["--help"]).help
    assert parse(["--version"]).version
    assert parse(["--num-instances", "3", "--num-replicas", "4", "-h"]).help


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("--num-instances 0 x", ["--num-instances 0", "at least 1"]),
        ("--num-instances -2 x", ["--num-instances -2", "at least 1"]),
        ("--num-instances two x", ["--num-instances two", "whole number"]),
        ("--num-instances 2.5 x", ["--num-instances 2.5", "whole number"]),
        ("--num-instances 99999999999999999999 x", ["at most 9 digits"]),
        ("--num-instances", ["--num-instances", "a value is needed"]),
        ("--num-instances= x", ["--num-instances"]),
        ("--num-instancs 2 x", ["--num-instancs", "did you mean --num-instances?"]),
        ("--num_replicas 2 x", ["did you mean --num-replicas?"]),
        ("--num=replicas 2 x", ["--num=replicas", "did you mean --num-replicas?"]),
        ("--num 2 x", ["--num is ambiguous", "--num-instances", "--num-replicas"]),
        ("--ipus-per replica=4 x", ["did you mean --ipus-per-replica=4?"]),
        ("--print-topology python x.py", ["--print-topology python", "yes or no", "--print-topology=yes|no"]),
        ("-q y", ["-q is not an option"]),
        ("--num-instances 3 --num-replicas 4 x", ["4 replicas over 3 instances", "use 1, 2 or 4 instances"]),
        ("--num-instances 4 --num-replicas 2 x", ["4 instances for 2", "--num-replicas 4"]),
        ("--num-instances 2 --num-instances 3 x", ["--num-instances is given twice"]),
        ("--num-instances 2 --only-output-from-instance 2 x", ["--only-output-from-instance 2", "use 0 to 1"]),
        ("--num-instances 2", ["no program was given"]),
        ("", ["no program was given"]),
        ("--timeout soon x", ["--timeout soon", "number of seconds"]),
        ("--grace nan x", ["--grace nan", "number of seconds"]),
    ],
)
def test_each_mistake_is_one_clear_line(line, pieces):
    lines = mistakes(line)
    assert len(lines) == 1
    for piece in pieces:
        assert piece in lines[0]


def test_all_mistakes_are_reported_together():
    lines = mistakes("--num-instances 3 --num-replicas 4 --ipus-per-replica many --print-topology perhaps x")
    assert [line.split()[0] for line in lines] == ["--ipus-per-replica", "--print-topology", "--num-instances"]


def test_consequences_of_a_mistake_are_not_reported():
    assert len(mistakes("--num-instances 0 --num-replicas 4 --only-output-from-instance 1 x")) == 1


def test_the_table_has_no_two_rows_of_a_name():
    names = [name for option in OPTIONS for name in option.spellings]
    assert len(set(names)) == len(names)
    assert all(option.help.endswith(".") for option in OPTIONS)


def test_malformed_lines_never_do_anything_but_explain():
    """Mutated command lines: the result is options or a UsageError, nothing else."""
    dice = random.Random(4)
    words = [
        "--num-instances",
        "2",
        "--num-replicas=4",
        "-vv",
        "--print-topology=yes",
        "--mpi",
        "mpich",
        "--grace=3",
        "x",
    ]
    for _ in range(600):
        line = list(words)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(line))
            word = line[at]
            cut = dice.randint(0, len(word))
            line[at : at + 1] = dice.choice(
                [
                    [],
                    [word, word],
                    [word[:cut] + dice.choice(string.printable) + word[cut:]],
                    [word[:cut], word[cut:]],
                ]
            ) or ["-"]
        try:
            parse(line)
            lines: tuple[str, ...] = ("it was fine",)
        except UsageError as error:
            lines = error.lines
        assert lines, line
        assert all(lines), line


@pytest.mark.parametrize("line", ["-np 2 x", "-np=2 x", "--nproc-per-node=2 x", "--nproc-per-node 2 x"])
def test_advice_for_options_of_other_launchers_repeats_the_users_number(line):
    assert "use --num-instances 2 " in mistakes(line)[0]
