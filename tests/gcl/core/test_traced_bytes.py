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
    names = [process.trace.names[int(number)] for number in process.spans["name"]]
    assert [(name.name, name.args["method"]) for name in names] == [
        ("all_reduce", "direct"),
        ("all_reduce", "clockwise_ring"),
        ("all_reduce", "meet_in_middle_ring, anticlockwise_ring"),
        ("all_gather", "anticlockwise_ring"),
        ("barrier", None),
    ]


def test_bytes_of_a_trace_are_those_of_all_collectives(folder: Path) -> None:
    expected: dict[str, int] = defaultdict(int)
    row, cube = np.ones((REPLICAS, 9), np.float32), np.ones((REPLICAS, REPLICAS, 3), np.float16)
    with gcl.connect(local_replicas=REPLICAS) as communicator:
        own = communicator.empty(1001, "float16")

        def count(name: str, *tensors: np.ndarray) -> None:
            expected[name] += sum(tensor.nbytes for tensor in tensors)

        for _ in range(3):  # repeated calls are looked up
            communicator.all_reduce(own, out=own)
            count("all_reduce", own)
            communicator.all_reduce([row, row + 1])
            count("all_reduce", row, row)
            communicator.all_reduce(row, method="clockwise_ring")
            count("all_reduce", row)
            communicator.all_reduce_async(row).wait()
            count("all_reduce", row)
            communicator.reduce_scatter(row)
            count("reduce_scatter", row)
            communicator.all_gather(row)
            count("all_gather", row)
            communicator.broadcast(row)
            count("broadcast", row)
            communicator.all_to_all(cube)
            count("all_to_all", cube)
            communicator.barrier()
    (process,) = read_run(folder).processes
    recorded: dict[str, int] = defaultdict(int)
    for span in process.spans:
        name = process.trace.names[int(span["name"])]
        if name.name != "barrier":
            recorded[name.name] += name.args["bytes"]
    assert recorded == expected
