"""Check that popdist_py and its queries import neither numpy nor mpi4py."""

import sys
import threading

import popdist_py

popdist_py.getInstanceIndex(), popdist_py.getNumTotalReplicas(), popdist_py.checkNumIpusPerReplica(1)
popdist_py.init()  # one instance alone needs no MPI
popdist_py.synchronize()
popdist_py.execute_on_instances({0}, print, end="")
heavy = {"numpy", "mpi4py", "numba", "gcl", "ipu_emu", "poprun_py", "asyncio", "logging"}
print(sorted(heavy & set(sys.modules)), threading.active_count())
