"""Messages over MPI: in order, separate from those of other communicators, and every wait is bounded."""

from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, Mpi, every_mpi, run_job


@every_mpi
def test_messages(mpi: Mpi, tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/transport/mpi_messages.py"
    ended = run_job(program, tmp_path, mpi=mpi)
    assert ended.out == ["fine\n"] * 2, ended.err
