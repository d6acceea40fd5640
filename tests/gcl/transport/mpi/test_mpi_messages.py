"""Messages over MPI: in order, apart from everyone else's, and never waited for without end."""

from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, Mpi, every_mpi, run_job


@every_mpi
def test_messages(mpi: Mpi, tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/transport/mpi_messages.py"
    ended = run_job(program, tmp_path, mpi=mpi)
    assert ended.out == ["fine\n"] * 2, ended.err
