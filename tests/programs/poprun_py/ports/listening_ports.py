"""Print the ports at which any process of this host listens once MPI runs, and wait for a line."""

import sys

from mpi4py import MPI

from tests.hostile.jobs.strangers import listening

MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("ports", *{port for _, port in listening()}, flush=True)
    sys.stdin.readline()
MPI.COMM_WORLD.Barrier()
