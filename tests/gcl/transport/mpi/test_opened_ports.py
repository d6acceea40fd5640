"""Ports: gcl opens none with any transport, so that nobody can disturb its ranks over the network."""

from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_job


def test_no_transport_between_ranks_opens_a_port(tmp_path: Path) -> None:
    ended = run_job(PROGRAMS / "gcl/transport/opened_ports.py", tmp_path)
    assert ended.out == ["[[2.0, 2.0, 2.0]]\n[[2.0, 2.0, 2.0]]\n[]\n"] * 2, ended.err
