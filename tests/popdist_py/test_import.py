"""Import of popdist_py: it must be fast, because launchers and short programs import it."""

from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS, run_alone


def test_importing_and_asking_imports_neither_numpy_nor_mpi(tmp_path: Path) -> None:
    program = PROGRAMS / "popdist_py/imports.py"
    ended = run_alone(program, tmp_path)
    assert (ended.stdout, ended.stderr) == ("[] 1\n", "")
