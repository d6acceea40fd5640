"""The page about collectives: the results that it shows are those of the collectives."""

from __future__ import annotations

import doctest
import os

import numpy as np
import pytest

from gcl import Communicator
from tests.gcl.helpers.threads import on_threads
from tests.helpers.mpi_jobs import ROOT

PAGE = ROOT / "docs/guides/collectives.md"


def test_examples_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GCL_")]:
        monkeypatch.delenv(name)
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.failed == 0
    assert results.attempted > 20


@pytest.mark.parametrize("method", ["auto", "clockwise_ring", "meet_in_middle_ring", "broadcast"])
@pytest.mark.parametrize("counts", [(2,), (1, 1)], ids=str)
def test_the_example_of_gcl(counts: tuple[int, ...], method: str) -> None:
    """{1,2,3,4} and {10,20,30,40}: {11,22}, {33,44}, then {11,22,33,44} on both."""
    data = np.float32([[1, 2, 3, 4], [10, 20, 30, 40]])

    def work(communicator: Communicator) -> tuple[list[list[float]], list[list[float]]]:
        first = communicator.global_offset
        shards = communicator.reduce_scatter(data[first : first + communicator.local_replicas].copy())
        return shards.tolist(), communicator.all_gather(shards).reshape(len(shards), -1).tolist()

    results = on_threads(counts, work, method=method)
    assert [row for shards, _ in results for row in shards] == [[11, 22], [33, 44]]
    assert [row for _, gathered in results for row in gathered] == [[11, 22, 33, 44]] * 2
