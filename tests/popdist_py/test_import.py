"""Import of popdist_py: it must be fast, since launchers and short programs do it."""

from pathlib import Path

from tests.helpers.mpi_jobs import run_alone


def test_importing_and_asking_imports_neither_numpy_nor_mpi(tmp_path: Path) -> None:
    program = """
    import sys, threading
    import popdist_py

    popdist_py.getInstanceIndex(), popdist_py.getNumTotalReplicas(), popdist_py.checkNumIpusPerReplica(1)
    popdist_py.init()  # one instance alone needs no MPI
    popdist_py.synchronize()
    popdist_py.execute_on_instances({0}, print, end="")
    heavy = {"numpy", "mpi4py", "numba", "gcl", "ipu_emu", "poprun_py", "asyncio", "logging"}
    print(sorted(heavy & set(sys.modules)), threading.active_count())
    """
    ended = run_alone(program, tmp_path)
    assert (ended.stdout, ended.stderr) == ("[] 1\n", "")
