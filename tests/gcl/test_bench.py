"""python -m gcl.bench: the table, its numbers, and its error messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gcl
from gcl.bench import main
from gcl.cli.bench_table import Row, Timing, summary, wrong
from gcl.cli.bench_trial import BenchCase, BenchTrial, bus_factor, trials
from gcl.core.operators import Operator
from gcl.core.request import Collective
from gcl.kernels.dtypes import DTYPES
from tests.gcl.helpers.threads import on_threads
from tests.helpers.mpi_jobs import run_job


def bench(*arguments: str, **environ: str | None) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"GCL_OPTIONS": None, **environ})


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.5), ("reduce_scatter", 0.75), ("all_gather", 0.75), ("all_to_all", 0.75), ("broadcast", 1)],
)
def test_rows_and_their_arithmetic(collective: str, factor: float, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    result = bench(
        *("--collective", collective, "--local-replicas", "4", "-b", "64", "-e", "4KiB", "-f", "8"),
        *("-n", "2", "-w", "0", "--json", str(path)),
    )
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert [row["size"] for row in document["rows"]] == [64, 512, 4096]
    assert document["replicas"] == 4
    every = []
    for row in document["rows"]:
        assert row["count"] * 4 * (4 if collective == "all_gather" else 1) == row["size"]
        for timing in filter(None, (row["out_of_place"], row["in_place"])):
            assert timing["wrong"] == 0
            assert timing["algbw"] == pytest.approx(row["size"] / timing["time_us"] / 1e3)
            assert timing["busbw"] == pytest.approx(factor * timing["algbw"])
            every.append(timing["busbw"])
        assert row["modelled_us"] > 0.3  # a sync at least
    assert document["average_busbw"] == pytest.approx(sum(every) / len(every))
    in_place = "reduce_scatter", "all_to_all"
    assert (document["rows"][0]["in_place"] is None) == (collective in in_place)
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith("#")] == ["64", "512", "4096"]
    assert "# Wrong values      : 0 OK" in lines


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor(Collective.ALL_REDUCE, 8) == 1.75
    assert bus_factor(Collective.ALL_GATHER, 8) == bus_factor(Collective.REDUCE_SCATTER, 8) == 0.875
    assert bus_factor(Collective.BROADCAST, 8) == 1


def operators_of(collective: Collective, dtype: np.dtype[Any]) -> list[Operator]:
    """The operators to run."""
    logical = [Operator.LOGICAL_AND, Operator.LOGICAL_OR]
    if collective not in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
        return [Operator.ADD]
    if dtype == np.bool_:
        return logical
    return [op for op in Operator if op not in (*logical, Operator.LOCAL)]


#: Kernels are compiled for each dtype; methods other than auto need none.
@pytest.mark.parametrize(
    ("method", "dtypes"),
    [("auto", [np.dtype("float32"), np.dtype("float16"), np.dtype("bool")]), ("bidirectional_ring_pair", DTYPES)],
)
@pytest.mark.parametrize("private", [False, True])
def test_every_collective_operator_and_dtype_is_checked_and_correct(
    private: bool, method: str, dtypes: Iterable[np.dtype[Any]]
) -> None:
    def work(communicator: gcl.Communicator) -> None:
        for collective, dtype in product(Collective, dtypes):
            for op in operators_of(collective, dtype):
                for trial in trials(BenchCase(collective, dtype, op, 300, private), communicator):
                    assert trial.wrong() == 0, f"{collective} {dtype} {op}"

    on_threads((1, 2), work, method=method)


def test_wrong_elements_are_counted() -> None:
    result = np.array([1, 2, 3])
    trial = BenchTrial(lambda: None, lambda: None, result, lambda: np.array([1, 0, 0]))
    assert trial.wrong() == 2
    timing = Timing(1.0, 1.0, 1.0, 2)
    row = Row(8, 2, "float32", "add", -1, timing, None, None)
    assert wrong([row])
    assert "2 FAILED" in summary([row])


def test_without_a_check_no_correctness_is_claimed() -> None:
    result = bench("--no-check", "-e", "1KiB", "-n", "1", "-w", "0")
    assert result.exit_code == 0
    assert "# Wrong values      : not checked" in result.output


def test_a_method_by_option_and_by_environment() -> None:
    arguments = ("-e", "1KiB", "-n", "1", "-w", "0", "--local-replicas", "4")
    assert "method clockwise_ring" in bench(*arguments, "--method", "clockwise_ring").output
    assert "method broadcast" in bench(*arguments, GCL_OPTIONS='{"method": "broadcast"}').output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-b", "x"), "--min-bytes x is not valid; write a number"),
        (("-b", "2k", "-e", "1k"), "-b must be at most -e"),
        (("--op", "sum"), "operator 'sum' is unknown; use add"),
        (("--op", "local"), "nothing to time"),
        (("--op", "add", "--dtype", "bool"), "does not take bool; use"),
        (("--method", "ring"), "method 'ring' is unknown; use auto"),
        (("-f", "1"), "Invalid value for '-f'"),
        (("-f", "nan"), "-f nan is not valid; give a number above 1"),
        (("-b", "0", "-e", "0"), "-e 0 leaves nothing to time"),
        (("-b", "1e15", "-e", "1e15"), "-e 1e15 is too large: 2 replicas of this process have a tensor and a result"),
        (("--local-replicas", "20000"), "20000 is not in the range 1<=x<=512"),
        (("--json", ""), "--json '' is not valid; write the name of a file"),
        (("--json", "/proc/x.json"), "--json /proc/x.json cannot be written"),
        (("--json", "/nowhere/x.json", "-e", "1k", "-n", "1"), "--json /nowhere/x.json cannot be written"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert "# " not in result.output, "nothing was measured in vain"


def test_all_mistakes_are_reported_together() -> None:
    result = bench(*["-b", "x", "--op", "sum", "--method", "ring", "--json", "/nowhere/x"], GCL_OPTIONS='{"a": 1}')
    assert result.exit_code == 2
    for what in ("--min-bytes x", "operator 'sum'", "method 'ring'", "no folder /nowhere", "unknown option 'a'"):
        assert what in " ".join(result.output.split())


def test_help_teaches() -> None:
    text = bench("--help").output
    for word in ("Examples", "How to read the table", "poprun-py --num-instances 4", "busbw", "modelled"):
        assert word in text


def test_only_the_first_instance_of_a_job_prints(tmp_path: Path) -> None:
    program = "from gcl.bench import main\nmain(['-e', '4KiB', '--collective', 'all_gather', '-n', '2'])"
    first, second = run_job(program, tmp_path, counts=(1, 2)).succeeded().out
    assert first.startswith("# all_gather of 3 replicas in 2 processes, shared_memory, method auto")
    assert "0 OK" in first
    assert second == ""
