"""Synchronize with the others, and wait."""

import time

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
print("met", flush=True)
time.sleep(60)
