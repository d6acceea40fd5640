"""Ranks that are processes of one host (what is in their memory: test_processes)."""

import json
import os
from pathlib import Path
from typing import Any

import msgpack
import pytest

from gcl import TransportError
from gcl.transport.memory import shared_memory
from tests.helpers.mpi_jobs import PROGRAMS, run_job


def test_processes_see_each_others_memory_and_each_others_end(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/transport/shared_memory.py"
    ended = run_job(program, tmp_path, counts=(1, 1, 1))
    assert ended.out[0], ended.err
    assert ended.out[0] == ended.out[1]
    texts, values, alive, cores, fault, after = json.loads(ended.out[0])
    assert texts == ["rank 0", "rank 1", "rank 2"]
    assert values == [0.0, 1.0, 2.0]
    assert alive == [True, True, True]
    assert cores >= 1
    assert fault.startswith("rank 1 cannot map its peers' memory: 65536 MiB of address space")
    assert fault.endswith("use transport='mpi'")
    assert after is False


def test_communicators_that_were_closed_hold_no_descriptors(tmp_path: Path) -> None:
    """Also while the program still references them and their tensors."""
    program = PROGRAMS / "gcl/transport/closed_communicators.py"
    assert run_job(program, tmp_path).succeeded().out == ["fine\n"] * 2


@pytest.mark.parametrize("what", ["a file", "a pipe", "memory of its own", "nothing"])
def test_a_descriptor_of_a_process_that_has_the_number_of_a_peer_is_not_opened(what, tmp_path: Path) -> None:
    """The peer is in another container; here its process id and descriptor mean something else."""
    path = tmp_path / "thesis"
    path.write_bytes(b"text" * 5000)
    descriptor = {
        "a file": lambda: os.open(path, os.O_RDONLY),
        "a pipe": lambda: os.pipe()[0],
        "memory of its own": lambda: os.memfd_create("gcl-segment-0123456789abcdef"),
        "nothing": lambda: 1 << 20,
    }[what]()
    rounds = 0

    def all_gather(mine: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        if rounds > 1:
            return [mine, mine]
        pid, started, _, control, *rest = msgpack.unpackb(mine)
        theirs: list[Any] = [pid, started, descriptor, control, *rest[:-1], "fedcba9876543210"]
        return [mine, msgpack.packb(theirs)]

    with pytest.raises(TransportError, match=f"rank 1, which is process {os.getpid()}, is on another"):
        shared_memory.domain(rank=0, ranks=2, all_gather=all_gather, segment_bytes=1 << 20)
    assert rounds == 2
    assert path.read_bytes() == b"text" * 5000
    if what != "nothing":
        os.close(descriptor)
