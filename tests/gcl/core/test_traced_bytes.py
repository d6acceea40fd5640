"""Traced bytes: the bytes of collectives in a trace are those of the tensors that were passed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gcl
from ipu_emu.trace import read_run
from popdist_py import trace

REPLICAS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    trace.start(tmp_path / "run")
    yield tmp_path / "run"
    trace.stop()


def test_the_method_of_a_collective_is_in_the_trace(folder: Path) -> None:
    row = np.ones((REPLICAS, 8), np.float32)
    with gcl.connect(local_replicas=REPLICAS) as communicator:
        communicator.all_reduce(row)
        communicator.all_reduce(row, method="clockwise_ring")
        communicator.all_reduce(row, method="meet_in_middle_ring,anticlockwise_ring")
        communicator.all_gather(row, method="anticlockwise_ring")
        communicator.barrier()
    (process,) = read_run(folder).processes
    names = [process.trace.names[int(each)] for each in process.spans["name"]]
    assert [(name.name, name.args["method"]) for name in names] == [
        ("all_reduce", "direct"),
        ("all_reduce", "clockwise_ring"),
        ("all_reduce", "meet_in_middle_ring, anticlockwise_ring"),
        ("all_gather", "anticlockwise_ring"),
        ("barrier", None),
    ]


def test_bytes_of_a_trace_are_those_of_all_collectives(folder: Path) -> None:
    given: dict[str, int] = defaultdict(int)
    row, cube = np.ones((REPLICAS, 9), np.float32), np.ones((REPLICAS, REPLICAS, 3), np.float16)
    with gcl.connect(local_replicas=REPLICAS) as communicator:
        own = communicator.empty(1001, "float16")

        def made(name: str, *tensors: np.ndarray) -> None:
            given[name] += sum(each.nbytes for each in tensors)

        for _ in range(3):  # repeated calls are looked up
            communicator.all_reduce(own, out=own)
            made("all_reduce", own)
            communicator.all_reduce([row, row + 1])
            made("all_reduce", row, row)
            communicator.all_reduce(row, method="clockwise_ring")
            made("all_reduce", row)
            communicator.all_reduce_async(row).wait()
            made("all_reduce", row)
            communicator.reduce_scatter(row)
            made("reduce_scatter", row)
            communicator.all_gather(row)
            made("all_gather", row)
            communicator.broadcast(row)
            made("broadcast", row)
            communicator.all_to_all(cube)
            made("all_to_all", cube)
            communicator.barrier()
    (process,) = read_run(folder).processes
    found: dict[str, int] = defaultdict(int)
    for each in process.spans:
        name = process.trace.names[int(each["name"])]
        if name.name != "barrier":
            found[name.name] += name.args["bytes"]
    assert found == given
