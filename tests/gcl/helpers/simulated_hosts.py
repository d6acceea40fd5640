"""Simulated hosts: runs ranks of one machine as if they were on several hosts.

``hosts`` names the host of each rank by a letter: "aab" puts the first two ranks on one host.
"""

from __future__ import annotations

import json
import time
from typing import Any
from unittest.mock import patch

import numpy as np

import gcl
import popdist_py
from tests.gcl.helpers.bitwise_comparison import check_dtypes
from tests.gcl.helpers.instance import connect, error_of

__all__ = ["ARRANGEMENTS", "say"]

#: Processes -> (hosts, local replicas of each rank, transport, the transport that is taken, groups as stride x size).
ARRANGEMENTS: dict[int, list[tuple[str, tuple[int, ...], str, str, str]]] = {
    2: [("aa", (1, 2), "mpi", "mpi", "1x3"), ("ab", (2, 2), "mpi", "mpi", "1x4 2x2")],
    3: [("abc", (2, 1, 1), "auto", "mpi", "1x4 2x2")],
    4: [
        ("aabb", (2, 2, 2, 2), "auto", "hosts", "1x8 1x4 1x2 4x2 2x4 2x2 1x1"),
        ("aabb", (3, 1, 1, 1), "auto", "hosts", "1x6 3x2 2x3"),  # hosts with different numbers of replicas
        ("abab", (1, 2, 1, 2), "auto", "hosts", "1x6 3x2 1x3 1x2"),  # a host's ranks are not neighbours
        ("aaab", (1, 1, 2, 2), "auto", "hosts", "1x6 1x2 3x2"),  # hosts with different numbers of ranks
    ],
}


def check_arrangement(
    hosts: str, counts: tuple[int, ...], transport: str, expected: str, groups: str, dtypes: tuple[str, ...]
) -> None:
    """Compare every collective with the same in one process: the first group with all ``dtypes``, others with two."""
    rank, total = popdist_py.host_backend().rank, sum(counts)
    place = {"local_replicas": counts[rank], "global_offset": sum(counts[:rank]), "global_replicas": total}
    for number, text in enumerate(groups.split()):
        stride, size = map(int, text.split("x"))
        group = gcl.Group(total, stride, size)
        with connect(**place, host=hosts[rank], transport=transport, group=group) as communicator:
            assert communicator.transport == expected, communicator.transport
            if number == 0:
                check_dtypes(communicator, (0, 1, 7, 1000, 100_003), dtypes)
            else:
                check_dtypes(communicator, (1, 1000), ("float16", "int32"))


def overwrite_what_was_sent(hosts: str) -> None:
    """Overwrite tensors as soon as a call returns: all receivers must have read them, because they are not copied."""
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank])
    x = communicator.empty((5_000_000,), np.int32)
    for turn in range(40):
        x[...] = turn if rank == 0 else -1
        communicator.broadcast(x, out=x)
        assert (x == turn).all(), turn
        x[...] = -2
        communicator.all_reduce(x, out=x)
        assert (x == -2 * len(hosts)).all(), turn


def wait_for_a_late_rank(hosts: str) -> str:
    """Make calls for which one rank is late, so that the others announce theirs; return the error of a mismatch."""
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank])
    small, large = (communicator.empty((count,), np.int32) for count in (1000, 5_000_000))
    for turn in range(2):
        time.sleep(0.3 if rank else 0)
        for x in (small, large, small):
            x[...] = rank + turn
            communicator.all_reduce(x, out=x)
            assert (x == 1 + 2 * turn).all(), turn
    for _ in range(300):  # earlier announcements are dropped
        communicator.barrier()
    return error_of(communicator.barrier if rank else lambda: communicator.all_reduce(small, out=small))


def take_other_tensors_each_time(hosts: str) -> str:
    """Repeat calls with other tensors on some ranks, which invalidates prepared calls; return a mismatch's error."""
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank])
    tensors = [communicator.empty(5000, np.int32) for _ in range(2)] + [np.zeros((1, 5000), np.int32)]
    for turn in range(60):
        x = tensors[turn * rank % 3] if turn < 40 else tensors[0]
        x[...] = turn + rank
        out = x if turn % 2 else np.empty_like(x)
        communicator.all_reduce(x, out=out)
        assert (out == 4 * turn + 6).all(), turn
        communicator.barrier()
    return error_of(lambda: communicator.all_reduce(tensors[0], "max" if rank == 3 else "add", out=tensors[0]))


def mismatch(hosts: str, odd: tuple[int, ...]) -> str:
    """The error if the ranks ``odd`` have tensors of another size."""
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank])
    return error_of(lambda: communicator.all_reduce(np.zeros((1, 4 + (rank in odd)), np.float32)))


def mismatch_of_sizes(hosts: str, elements: tuple[int, ...]) -> str:
    """The error if rank i calls with ``elements[i]``, after a successful call of one rank per host."""
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank], timeout=60)
    assert (communicator.all_reduce(np.ones((1, 8), np.float32)) == len(hosts)).all()
    x = communicator.empty(elements[rank])
    return error_of(lambda: communicator.all_reduce(x, out=x))


def messages_of_calls(hosts: str, sizes: tuple[int, ...]) -> list[int]:
    """The number of messages that this rank sends in an all-reduce of each of ``sizes`` (elements)."""
    from gcl.transport.mpi.mpi_messages import MpiMessages

    rank, sent, prepare_send = popdist_py.host_backend().rank, list[int](), MpiMessages.prepare_send

    def counted(messages: MpiMessages, to: int, data: np.ndarray, *, tag: int) -> Any:
        sent[-1] += 1
        return prepare_send(messages, to, data, tag=tag)

    with connect(host=hosts[rank]) as communicator, patch.object(MpiMessages, "prepare_send", counted):
        for elements in sizes:
            sent.append(0)
            x = communicator.empty(elements)
            x[...] = rank
            communicator.all_reduce(x, out=x)
            assert (x == sum(range(len(hosts)))).all(), elements
    return sent


def mismatch_with_data(hosts: str, odd: str, elements: int) -> str:
    """The error if host ``odd`` calls a barrier while the others send more than MPI sends without a receiver."""
    host = hosts[popdist_py.host_backend().rank]
    communicator = connect(host=host)
    x = communicator.empty(elements)
    return error_of(communicator.barrier if host == odd else lambda: communicator.all_reduce(x, out=x))


def say(*calls: tuple[str, list[Any]]) -> None:
    """Make the calls of the command line in turn, and print the results as JSON."""
    popdist_py.init()
    print(json.dumps([globals()[name](*arguments) for name, arguments in calls]), flush=True)
