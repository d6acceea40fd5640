"""The same checks between real processes: over shared memory and over MPI, with each MPI."""

from pathlib import Path

from tests.helpers.mpi_jobs import MPICH, PROGRAMS, Mpi, every_mpi, run_job

#: Checks every collective with the operators and over the transports of the command line, for several groups.
CHECKS = PROGRAMS / "gcl/collectives/every_collective.py"


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
    program = PROGRAMS / "gcl/collectives/tensor_outlives_communicator.py"
    assert run_job(program, tmp_path).succeeded().out == ["1000.0 1000.0\n"] * 2


def test_a_forked_child_cannot_take_its_parents_place(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/collectives/forked_child.py"
    first, second = run_job(program, tmp_path).succeeded().out
    assert first.startswith("GclError: this process was forked from a rank, whose place it cannot take")
    assert first.endswith("\n3.0\n")
    assert second == "3.0\n"
