"""The same checks between real processes: over shared memory and over MPI, with each MPI."""

from pathlib import Path

from tests.helpers.mpi_jobs import MPICH, Mpi, every_mpi, run_job

#: Checks every collective with the operators and over the transports of the command line, for several groups.
CHECKS = """
    import sys
    import gcl, popdist_py
    from tests.gcl.helpers.checks import check_all, check_collectives

    popdist_py.init()
    total = popdist_py.getNumTotalReplicas()
    place = {
        "local_replicas": popdist_py.getNumLocalReplicas(),
        "global_offset": popdist_py.getReplicaIndexOffset(),
        "global_replicas": total,
    }
    groups = [gcl.Group.all(total), gcl.Group.orthogonal(total, 2)]
    operators, transports = (argument.split(",") for argument in sys.argv[1:3])
    every, starts = int(sys.argv[3]), 0
    for transport in transports:
        for group in groups:
            with gcl.connect(**place, group=group, transport=transport, timeout=250) as communicator:
                assert communicator.transport == transport
                check_all(communicator, sizes=(0, 7, 1000), operators=operators, every=every, start=starts)
                check_collectives(communicator, 100_003, *(("float16", "mean") if starts % 2 else ("float32", "add")))
                starts += 1
    print("all equal")
"""


def check(
    counts: tuple[int, ...], folder: Path, mpi: Mpi, transports: str, operators: str = "add,mean,min", *, full: bool
) -> None:
    """With ``full`` every operator, dtype and size over every transport and group; else a quarter of them on each."""
    ended = run_job(CHECKS, folder, operators, transports, 1 if full else 4, counts=counts, mpi=mpi).succeeded()
    assert ended.out == ["all equal\n"] * len(counts)


@every_mpi
def test_two_instances_of_two_replicas(mpi: Mpi, full: bool, tmp_path: Path) -> None:
    check((2, 2), tmp_path, mpi, "shared_memory,mpi", full=full)


@every_mpi
def test_instances_with_different_numbers_of_replicas(mpi: Mpi, full: bool, tmp_path: Path) -> None:
    check((3, 1, 2), tmp_path, mpi, "shared_memory,mpi", full=full)


def test_eight_instances_on_whatever_cores_there_are(full: bool, tmp_path: Path) -> None:
    check((1,) * 8, tmp_path, MPICH, "shared_memory,mpi", "mean", full=full)


def test_a_shared_tensor_outlives_its_communicator(tmp_path: Path) -> None:
    program = """
    import gc
    from tests.gcl.helpers.instance import connect

    communicator = connect()
    closed = communicator.shared(1000)
    communicator.barrier()
    communicator.close()
    closed[:] = 1
    communicator = connect()
    dropped = communicator.shared(1000)
    communicator.barrier()
    del communicator
    gc.collect()
    dropped[:] = 1
    print(closed.sum(), dropped.sum())
    """
    assert run_job(program, tmp_path).succeeded().out == ["1000.0 1000.0\n"] * 2


def test_a_forked_child_cannot_take_its_parents_place(tmp_path: Path) -> None:
    program = """
    import os
    import time
    import popdist_py
    from tests.gcl.helpers.instance import connect, error_of

    communicator = connect()
    x = communicator.empty(4)
    communicator.all_reduce(x, out=x)
    x[:] = popdist_py.getInstanceIndex() + 1
    if popdist_py.getInstanceIndex() == 0 and os.fork() == 0:
        print(error_of(lambda: communicator.all_reduce(x, out=x)), flush=True)
        os._exit(0)
    if popdist_py.getInstanceIndex() == 0:
        os.wait()
        time.sleep(0.5)  # the other one looks meanwhile whether its peer has left
    print(communicator.all_reduce(x)[0, 0], flush=True)
    """
    first, second = run_job(program, tmp_path).succeeded().out
    assert first.startswith("GclError: this process was forked from a rank, whose place it cannot take")
    assert first.endswith("\n3.0\n")
    assert second == "3.0\n"
