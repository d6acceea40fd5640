"""When processes do not do the same, or die: what the others hear, and how soon.

The launcher lets the survivors live here, so that they can tell; poprun-py would end them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import run_job

#: The peer ends or leaves while instances 0 and 2 wait; they say what they heard and after how many seconds.
PEER_GOES = """
    import json, os, signal, sys, time
    import numpy as np
    import popdist_py
    from tests.gcl.instance import connect, error_of

    how, transport = sys.argv[1:]
    communicator = connect(transport=transport)
    x = communicator.empty(1000)
    for _ in range(3):
        communicator.all_reduce(x, out=x)
    if popdist_py.host_backend().rank == 1:
        time.sleep(0.5)
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "close":
            communicator.close()
        if how == "exit":
            sys.exit(0)
        if how == "raise":
            raise ValueError("the data is bad")
    else:
        started = time.monotonic()
        heard = error_of(lambda: communicator.all_reduce(x, out=x))
        waited = time.monotonic() - started
        print(json.dumps([heard, waited, error_of(communicator.barrier)]), flush=True)
        if how in ("die", "raise"):
            os._exit(0)  # MPI would wait for the one that is gone
"""


def heard(folder: Path, how: str, transport: str) -> list[Any]:
    """What instances 0 and 2 heard of the end of instance 1."""
    ended = run_job(PEER_GOES, folder, how, transport, counts=(1, 2, 1), timeout=60)
    assert ended.out[0], ended.err
    return [json.loads(ended.out[instance]) for instance in (0, 2)]


@pytest.mark.parametrize(
    ("how", "transport", "why"),
    [
        ("die", "shared_memory", "whose process has died"),
        ("close", "shared_memory", "which has left"),
        ("exit", "shared_memory", "which has left"),
        ("raise", "shared_memory", "which has left"),
        ("close", "mpi", "which has left"),
        ("exit", "mpi", "which has left"),
        ("raise", "mpi", "which has left"),
    ],
)
def test_a_peer_that_goes_while_others_wait(how: str, transport: str, why: str, tmp_path: Path) -> None:
    for error, waited, again in heard(tmp_path, how, transport):
        assert error.startswith(
            "PeerLost: all_reduce(add, 1000 x float32) waits for replicas 1 to 2 (rank 1), " + why
        )
        assert waited < 20, "the time-out is 60 s"
        assert again == error


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_a_peer_that_goes_when_it_has_done_its_part_is_not_missed(transport: str, tmp_path: Path) -> None:
    """Instance 0 still sends to instance 1, which is late, when instance 2 has what it wanted, and leaves."""
    program = """
    import sys, time
    import numpy as np
    import popdist_py
    from tests.gcl.instance import connect

    communicator = connect(transport=sys.argv[1])
    me = popdist_py.getInstanceIndex()
    x = np.full((1, 1_000_000), me, np.float32)
    if me == 1:
        time.sleep(1)
    with communicator:
        assert not communicator.broadcast(x).any()
    print("fine")
    """
    assert run_job(program, tmp_path, transport, counts=(1, 1, 1)).succeeded().out == ["fine\n"] * 3


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_a_mismatch_is_the_same_on_every_rank(transport: str, tmp_path: Path) -> None:
    program = """
    import json, sys
    import numpy as np
    import popdist_py
    from tests.gcl.instance import connect, error_of

    def work(n, op="add"):
        return lambda: communicator.all_reduce(np.zeros((1, n), np.float32), op)

    communicator = connect(transport=sys.argv[1])
    me = popdist_py.host_backend().rank
    said = [error_of(work(4, "max") if me == 2 else work(4))]
    said.append(error_of(work(4)))
    communicator = connect(transport=sys.argv[1])
    said.append(error_of(work(4 + me)))
    communicator = connect(transport=sys.argv[1])
    said.append(error_of(communicator.barrier if me else work(4)))
    print(json.dumps(said))
    """
    ended = run_job(program, tmp_path, transport, counts=(1, 1, 1)).succeeded()
    assert ended.out[0] == ended.out[1] == ended.out[2]
    operator, again, size, collective = json.loads(ended.out[0])
    line = f"at {tmp_path}/program.py:8"
    assert operator == (
        f"CollectiveMismatch: replica 0 (rank 0) called all_reduce(add, 4 x float32) {line}, "
        f"but replica 2 (rank 2) called all_reduce(max, 4 x float32) {line}; "
        "every rank must make the same calls in the same order"
    )
    assert again == operator
    assert f"all_reduce(add, 4 x float32) {line}, but replica 1 (rank 1) called all_reduce(add, 5 x" in size
    assert f"all_reduce(add, 4 x float32) {line}, but replica 1 (rank 1) called barrier at" in collective


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_ranks_that_never_arrive_are_named(transport: str, tmp_path: Path) -> None:
    program = """
    import sys
    import popdist_py
    from tests.gcl.instance import connect, error_of

    communicator = connect(transport=sys.argv[1], timeout=1.0)
    if popdist_py.host_backend().rank % 2 == 0:
        print(error_of(communicator.barrier))
    popdist_py.synchronize()
    """
    ended = run_job(program, tmp_path, transport, counts=(1, 2, 1, 1)).succeeded()
    for instance in (0, 2):
        assert ended.out[instance].startswith(
            "CollectiveTimeout: barrier waited 1 s for replicas 1 to 2 (rank 1), replica 4 (rank 3); "
        )
