"""connect: who may join whom, over what, and what surrounds a communicator's life, between processes."""

import json
from pathlib import Path

from tests.helpers.mpi_jobs import run_job


def test_what_does_not_fit_is_the_same_error_on_every_rank(tmp_path: Path) -> None:
    program = """
    import gcl, popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    popdist_py.init()
    rank, total = popdist_py.getInstanceIndex(), popdist_py.getNumTotalReplicas()
    print(error_of(lambda: connect(global_offset=0)))
    print(error_of(lambda: connect(global_replicas=total + rank)))
    print(error_of(lambda: connect(global_replicas=total + 5)))
    print(error_of(lambda: connect(transport="inprocess")))
    print(error_of(lambda: connect(transport="mpi" if rank else "shared_memory")))
    print(error_of(lambda: connect(group=gcl.Group.none(total) if rank else gcl.Group.all(total))))
    print(error_of(lambda: connect().barrier()))
    """
    ended = run_job(program, tmp_path, counts=(1, 1, 1)).succeeded()
    offset, disagree, total, inprocess, transport, group, fine = ended.out[0].splitlines()
    assert offset.startswith("ArgumentError: rank 1 says its first replica is 0, but ranks before it own 1")
    assert disagree.startswith("ArgumentError: rank 1 says there are 4 replicas, rank 0 says 3")
    assert total.startswith("ArgumentError: 3 ranks own 3 replicas in total, but global_replicas is 8")
    assert inprocess.startswith(
        "ArgumentError: transport 'inprocess' works in one process, but 3 processes take part"
    )
    assert transport.startswith("ArgumentError: rank 1 connects with transport 'mpi', groups of 3")
    assert "groups of 1 with stride 1" in group
    assert fine == "no error"
    assert ended.out[1] == ended.out[2] == ended.out[0]


def test_connecting_before_init_names_init(tmp_path: Path) -> None:
    program = """
    import gcl, popdist_py
    from tests.gcl.helpers.instance import error_of

    print(error_of(lambda: gcl.connect(local_replicas=1, global_replicas=2)))
    print(gcl.connect(local_replicas=3, segment_bytes=1 << 20).transport)
    """
    for said in run_job(program, tmp_path).succeeded().out:
        others, alone = said.splitlines()
        assert "call popdist_py.init() first" in others
        assert alone == "inprocess", "replicas of one process need nobody"


def test_without_numbers_it_is_all_of_the_job(tmp_path: Path) -> None:
    program = """
    import gcl, popdist_py
    from tests.gcl.helpers.instance import error_of

    print(error_of(gcl.connect))
    popdist_py.init()
    joined = gcl.connect()
    print(joined.local_replicas, joined.global_offset, joined.global_replicas, joined.transport)
    print(gcl.connect(local_replicas=2, segment_bytes=1 << 20).global_replicas)
    """
    ended = run_job(program, tmp_path, counts=(1, 2)).succeeded()
    for said, joined in zip(ended.out, ("1 0 3 shared_memory", "2 1 3 shared_memory"), strict=True):
        before, *after = said.splitlines()
        assert "call popdist_py.init() first" in before
        assert after == [joined, "2"]


def test_two_communicators_side_by_side_in_two_threads(tmp_path: Path) -> None:
    program = """
    import threading
    import numpy as np
    import gcl
    from tests.gcl.helpers.instance import connect

    def work(communicator, start, sums):
        for step in range(200):
            x = np.full((1, step + 1), step + start, np.float32)
            sums.append(float(communicator.all_reduce(x)[0, -1]))

    for transport in ("shared_memory", "mpi"):
        sums = [[], []]
        communicators = [connect(transport=transport), connect(transport=transport, group=gcl.Group.none(2))]
        threads = [threading.Thread(target=work, args=(communicators[i], i, sums[i])) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums[0] == [2.0 * step for step in range(200)], sums[0]
        assert sums[1] == [step + 1.0 for step in range(200)], sums[1]
    print("as each alone")
    """
    assert run_job(program, tmp_path).succeeded().out == ["as each alone\n"] * 2


def test_a_forked_child_that_ends_does_not_take_its_parent_along(tmp_path: Path) -> None:
    """What the end of a rank tells the others is not for its child to tell."""
    program = """
    import os, sys
    import numpy as np
    import popdist_py
    from tests.gcl.helpers.instance import connect

    communicator = connect()
    if popdist_py.getInstanceIndex() == 1:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    popdist_py.synchronize()
    print(communicator.all_reduce(np.ones((1, 3), np.float32)).tolist())
    """
    assert run_job(program, tmp_path).succeeded().out == ["[[2.0, 2.0, 2.0]]\n"] * 2


def test_memory_has_no_name_in_any_folder_and_goes_with_its_communicator(tmp_path: Path) -> None:
    program = """
    import json, os
    from tests.gcl.helpers.instance import connect

    def mapped():
        with open("/proc/self/maps") as file:
            return [line.split(maxsplit=5)[5].strip() for line in file if len(line.split()) > 5]

    def work():
        with connect(transport="shared_memory") as communicator:
            communicator.all_reduce(communicator.empty(100_000))
            return mapped()

    first = set(work())
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        work()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    print(json.dumps([sorted(first), sorted(mapped())]))
    """
    for said in run_job(program, tmp_path).succeeded().out:
        during, after = json.loads(said)
        assert {name for name in during if "gcl-" in name} == {
            "/memfd:gcl-control (deleted)",
            "/memfd:gcl-segment (deleted)",
        }
        assert not [name for name in after if "gcl-" in name]
        assert not [name for name in during if name.startswith("/dev/shm/") and Path(name).exists()]
