"""Wait; with an argument, after an exchange with the others."""

import sys
import time

if len(sys.argv) > 1:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    MPI.COMM_WORLD.allreduce(1)
time.sleep(60)
