"""Hierarchical path: collectives over simulated hosts, the processes of one machine in every arrangement.

Starting processes takes most of the time, so one job runs all checks for its number of processes.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.gcl.helpers.bitwise_comparison import OPERATORS
from tests.gcl.helpers.simulated_hosts import ARRANGEMENTS
from tests.helpers.mpi_jobs import PROGRAMS, run_job

#: Hosts, and the ranks whose call differs.
MISMATCHES = [(hosts, odd) for hosts in ("aabb", "aaab", "abcd") for odd in ((0,), (1,), (2,), (3,), (1, 3))]
#: Elements of the call of each rank: few, which the first rank of a host sends for all its ranks, and many, of which
#: each rank sends a stripe, in one exchange (200,000) or in chunks (2,000,000).
SIZES = [
    (4, 4, 4, 5),
    (4, 4, 200_000, 200_000),
    (200_000, 4, 4, 4),
    (4, 200_000, 4, 4),
    (4, 200_000, 200_000, 4),
    (200_000, 4, 4, 200_000),
    (4, 5_000_000, 4, 4),
    (4, 4, 5_000_000, 5_000_000),
]
#: Hosts, the one whose call differs, and numbers of elements that are sent in one exchange, or in chunks.
WITH_DATA = {
    2: [("ab", odd, elements) for odd in "ab" for elements in (200_000, 5_000_000)],
    4: [("aabb", odd, elements) for odd in "ab" for elements in (200_000, 5_000_000)],
}

Said = list[list[Any]]


def _do(calls: list[tuple[str, Any]], processes: int, folder: Path) -> Said:
    """The results of each call of ``simulated_hosts`` on each rank."""
    program, said = PROGRAMS / "gcl/transport/simulated_hosts.py", pickle.dumps(calls).hex()
    return [json.loads(out) for out in run_job(program, folder, said, counts=(1,) * processes).succeeded().out]


def _alike(said: Said) -> list[Any]:
    """The result of all ranks, which must be equal."""
    assert all(other == said[0] for other in said), said
    return said[0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_every_arrangement_gives_the_bits_of_one_process(processes: int, full: bool, tmp_path: Path) -> None:
    """Of the arrangements of four processes the first has all dtypes, the three others have a third of them each."""
    all_dtypes, calls = tuple(OPERATORS), list[tuple[str, Any]]()
    for number, arrangement in enumerate(ARRANGEMENTS[processes]):
        dtypes = all_dtypes if full or processes < 4 or not number else all_dtypes[number - 1 :: 3]
        calls.append(("check_arrangement", (*arrangement, dtypes)))
    _do(calls, processes, tmp_path)


@pytest.mark.timeout(180)
def test_two_hosts_with_a_rank_each(tmp_path: Path) -> None:
    """Sent tensors may be overwritten immediately; a late rank is not a mismatch; unused data is dropped."""
    calls: list[tuple[str, Any]] = [("overwrite_what_was_sent", ("ab",)), ("wait_for_a_late_rank", ("ab",))]
    calls += [("mismatch_with_data", case) for case in WITH_DATA[2]]
    late, *errors = _alike(_do(calls, 2, tmp_path))[1:]
    assert "called all_reduce(add, 1000 x int32)" in late, late
    assert "called barrier" in late, late
    for error in errors:
        assert error.startswith("CollectiveMismatch: "), error


@pytest.mark.timeout(180)
def test_four_ranks_on_hosts(tmp_path: Path) -> None:
    """Ranks take other tensors each time; a mismatch is the same on every rank of every host, also with data sent."""
    calls: list[tuple[str, Any]] = [("take_other_tensors_each_time", ("aabb",))]
    calls += [("mismatch", case) for case in MISMATCHES] + [("mismatch_with_data", case) for case in WITH_DATA[4]]
    said = _alike(_do(calls, 4, tmp_path))
    assert all(error.startswith("CollectiveMismatch: ") for error in said), said
    assert "replica 3 (rank 3) called all_reduce(max, 5000 x int32)" in said[0]
    for (hosts, odd), error in zip(MISMATCHES, said[1:], strict=False):
        first = odd[0]
        call = f"replica {first} (rank {first}) called all_reduce(add, 5" if first == 0 else f"but replica {first} "
        assert call in error, (hosts, odd, error)


def test_one_rank_of_a_host_sends_small_tensors(tmp_path: Path) -> None:
    """Elements of 4 bytes on two replicas per host: 128 KiB are the most that one rank sends."""
    calls: list[tuple[str, Any]] = [("messages_of_calls", ("aabb", (1, 16_384, 16_385)))]
    assert _do(calls, 4, tmp_path) == [[[1, 1, 1]], [[0, 0, 1]], [[1, 1, 1]], [[0, 0, 1]]]


@pytest.mark.timeout(120)
def test_a_mismatch_reaches_ranks_that_only_meet_for_small_calls(tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = [
        ("mismatch_of_sizes", (hosts, sizes)) for hosts in ("aabb", "abab") for sizes in SIZES
    ]
    for (_, case), error in zip(calls, _alike(_do(calls, 4, tmp_path)), strict=True):
        assert error.startswith("CollectiveMismatch: "), (case, error)


@pytest.mark.parametrize(
    ("hosts", "transport"), [("abc", "auto"), ("aabb", "auto"), ("aaab", "auto"), ("aaa", "mpi")]
)
def test_ranks_report_that_a_process_has_died(hosts: str, transport: str, tmp_path: Path) -> None:
    """The last one dies within collectives that follow on each other."""
    program = PROGRAMS / "gcl/transport/dying_host.py"
    counts = (1,) * (len(hosts) - 1) + (2,)
    ended = run_job(program, tmp_path, hosts, transport, counts=counts)
    last = len(hosts) - 1
    said = [json.loads(out) for out in ended.out[:last]]
    assert ended.out[last] == ""
    for heard, again in said:
        assert heard.startswith("PeerLost: all_reduce(add, 300000 x float32) waits for "), ended.err
        assert again == heard
    named = f"replicas {last} to {last + 1} (rank {last})"
    assert all(named in heard for heard, _ in said), said


def test_instances_that_do_not_connect_are_named(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/transport/late_instance.py"
    first, late, last = run_job(program, tmp_path, counts=(2, 2, 2)).out
    for said in (first, last):
        assert said.startswith("CollectiveTimeout: connect waited 5 s for replicas 2 to 3 (rank 1); ")
    assert late.startswith(
        "CollectiveTimeout: connect waited 5 s for replicas 0 to 1 (rank 0), replicas 4 to 5 (rank 2)"
    )
