"""Collectives over hosts that are only believed to be some: one machine's processes, arranged in every way."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from tests.helpers.mpi_jobs import run_job

PROGRAM = """
    import sys
    import gcl, popdist_py
    from tests.gcl.helpers.bitwise_comparison import check_dtypes
    from tests.gcl.helpers.instance import connect

    popdist_py.init()
    hosts, transport, expected, *groups = sys.argv[1:]
    host, total = hosts[popdist_py.host_backend().rank], popdist_py.getNumTotalReplicas()
    for number, text in enumerate(groups):
        stride, size = map(int, text.split("x"))
        with connect(host=host, transport=transport, group=gcl.Group(total, stride, size)) as communicator:
            assert communicator.transport == expected, communicator.transport
            if number == 0:
                check_dtypes(communicator, (0, 1, 7, 1000, 100_003))
            else:
                check_dtypes(communicator, (1, 1000), ("float16", "int32"))
    print("all equal")
"""


@pytest.mark.parametrize(
    ("hosts", "counts", "transport", "expected", "groups"),
    [
        ("aabb", (2, 2, 2, 2), "auto", "hosts", "1x8 1x4 1x2 4x2 2x4 2x2 1x1"),
        ("aabb", (3, 1, 1, 1), "auto", "hosts", "1x6 3x2 2x3"),  # hosts with different numbers of replicas
        ("abab", (1, 2, 1, 2), "auto", "hosts", "1x6 3x2 1x3 1x2"),  # a host's ranks are not neighbours
        ("aaab", (1, 1, 2, 2), "auto", "hosts", "1x6 1x2 3x2"),  # hosts with different numbers of ranks
        ("abc", (2, 1, 1), "auto", "mpi", "1x4 2x2"),
        ("aa", (1, 2), "mpi", "mpi", "1x3"),
        ("ab", (2, 2), "mpi", "mpi", "1x4 2x2"),
    ],
)
def test_every_arrangement_gives_the_bits_of_one_process(
    hosts: str, counts: tuple[int, ...], transport: str, expected: str, groups: str, tmp_path: Path
) -> None:
    ended = run_job(PROGRAM, tmp_path, hosts, transport, expected, *groups.split(), counts=counts).succeeded()
    assert ended.out == ["all equal\n"] * len(counts)


@pytest.mark.parametrize(
    ("hosts", "counts", "expected"),
    [("ab", (2, 2), "tcp"), ("abc", (2, 1, 1), "tcp"), ("aabb", (1, 1, 1, 1), "hosts")],
)
def test_what_is_lent_and_not_copied_has_the_same_bits(
    hosts: str, counts: tuple[int, ...], expected: str, tmp_path: Path
) -> None:
    lending = (
        f"from gcl.transport.messages import message_channel\nmessage_channel._LENT_BYTES = 1\n{dedent(PROGRAM)}"
    )
    ended = run_job(lending, tmp_path, hosts, "auto", expected, "1x4", "2x2", counts=counts).succeeded()
    assert ended.out == ["all equal\n"] * len(counts)


def test_what_was_sent_may_be_overwritten_at_once(tmp_path: Path) -> None:
    """Connections refer to the pages of large tensors: a call ends when everyone has read them."""
    program = """
    import numpy as np
    import gcl.transport.messages.message_channel, popdist_py
    from tests.gcl.helpers.instance import connect

    gcl.transport.messages.message_channel._LENT_BYTES = 1
    popdist_py.init()
    rank = popdist_py.host_backend().rank
    communicator = connect(host="ab"[rank])
    x = communicator.empty((2_000_000,), np.int32)
    for turn in range(100):
        x[...] = turn if rank == 0 else -1
        communicator.broadcast(x, out=x)
        assert (x == turn).all(), turn
        x[...] = -2
        communicator.all_reduce(x, out=x)
        assert (x == -4).all(), turn
    print("as sent")
    """
    assert run_job(program, tmp_path, counts=(1, 1)).succeeded().out == ["as sent\n"] * 2


def test_ranks_of_a_host_may_take_other_tensors_each_time(tmp_path: Path) -> None:
    """What is prepared for a call holds while the tensors of all ranks of the host stay the same."""
    program = """
    import numpy as np
    import popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    popdist_py.init()
    rank = popdist_py.host_backend().rank
    communicator = connect(host="aabb"[rank])
    tensors = [communicator.empty(5000, np.int32) for _ in range(2)] + [np.zeros((1, 5000), np.int32)]
    for turn in range(60):
        x = tensors[turn * rank % 3] if turn < 40 else tensors[0]
        x[...] = turn + rank
        out = x if turn % 2 else np.empty_like(x)
        communicator.all_reduce(x, out=out)
        assert (out == 4 * turn + 6).all(), turn
        communicator.barrier()
    print(error_of(lambda: communicator.all_reduce(tensors[0], "max" if rank == 3 else "add", out=tensors[0])))
    """
    said = run_job(program, tmp_path, counts=(1, 1, 1, 1)).succeeded().out
    assert len(set(said)) == 1
    assert said[0].startswith("CollectiveMismatch: "), said
    assert "replica 3 (rank 3) called all_reduce(max, 5000 x int32)" in said[0]


@pytest.mark.parametrize(
    ("hosts", "transport"), [("abc", "auto"), ("aabb", "auto"), ("aaab", "auto"), ("aaa", "mpi")]
)
def test_ranks_are_told_that_a_process_has_died(hosts: str, transport: str, tmp_path: Path) -> None:
    """The last one dies within collectives that follow on each other."""
    program = """
    import json, os, signal, sys, threading, time
    import popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    hosts, transport = sys.argv[1:]
    popdist_py.init()
    rank = popdist_py.host_backend().rank
    communicator = connect(host=hosts[rank], transport=transport)
    x = communicator.empty(300_000)

    def work():
        while True:
            communicator.all_reduce(x, out=x)

    if rank == len(hosts) - 1:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    heard = error_of(work)
    print(json.dumps([heard, error_of(communicator.barrier)]), flush=True)
    os._exit(0)  # MPI would wait for the one that is gone
    """
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


def test_a_mismatch_is_the_same_on_every_rank_of_every_host(tmp_path: Path) -> None:
    program = """
    import sys
    import numpy as np
    import popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    popdist_py.init()
    rank = popdist_py.host_backend().rank
    for hosts in ("aabb", "aaab", "abcd"):
        for odd in ((0,), (1,), (2,), (3,), (1, 3)):
            communicator = connect(host=hosts[rank])
            work = lambda: communicator.all_reduce(np.zeros((1, 4 + (rank in odd)), np.float32))
            print(error_of(work))
    """
    ended = run_job(program, tmp_path, counts=(1, 1, 1, 1)).succeeded()
    assert len(set(ended.out)) == 1
    for number, line in enumerate(ended.out[0].splitlines()):
        odd = (0, 1, 2, 3, 1)[number % 5]
        differing = (
            "replica 0 (rank 0) called all_reduce(add, 5" if odd == 0 else f"but replica {odd} (rank {odd}) called"
        )
        assert line.startswith("CollectiveMismatch: "), line
        assert differing in line


@pytest.mark.timeout(180)
@pytest.mark.parametrize("hosts", ["ab", "aabb"])
def test_a_mismatch_is_told_while_data_is_on_its_way(hosts: str, tmp_path: Path) -> None:
    """Connections that hold next to nothing: what one host sent in vain, the other one drops before it complains."""
    program = """
    import socket, sys
    import popdist_py
    from gcl.transport.tcp.tcp_messages import TcpMessages
    from tests.gcl.helpers.instance import connect, error_of

    made = TcpMessages.__init__

    def narrow(self, rank, connections):
        made(self, rank, connections)
        for connection in connections.values():
            for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                connection.setsockopt(socket.SOL_SOCKET, size, 4096)

    TcpMessages.__init__ = narrow
    popdist_py.init()
    host = sys.argv[1][popdist_py.host_backend().rank]
    for odd in "ab":
        communicator = connect(host=host)
        x = communicator.empty(200_000)
        print(error_of(communicator.barrier if host == odd else lambda: communicator.all_reduce(x, out=x)))
    """
    said = run_job(program, tmp_path, hosts, counts=(1,) * len(hosts)).succeeded().out
    assert len(set(said)) == 1, said
    assert all(line.startswith("CollectiveMismatch: ") for line in said[0].splitlines()), said[0]


def test_instances_that_do_not_connect_are_named(tmp_path: Path) -> None:
    program = """
    import os, time
    import popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    popdist_py.init()
    rank = popdist_py.host_backend().rank
    if rank == 1:
        time.sleep(8)
    print(error_of(lambda: connect(timeout=0.1)), flush=True)
    os._exit(0)  # MPI has calls under way that nobody answers
    """
    first, late, last = run_job(program, tmp_path, counts=(2, 2, 2)).out
    for said in (first, last):
        assert said.startswith("CollectiveTimeout: connect waited 5 s for replicas 2 to 3 (rank 1); ")
    assert late.startswith(
        "CollectiveTimeout: connect waited 5 s for replicas 0 to 1 (rank 0), replicas 4 to 5 (rank 2)"
    )
