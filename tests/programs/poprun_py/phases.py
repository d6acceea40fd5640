"""Stay in one phase of a program's life, which the argument names."""

import sys
import time

phase = sys.argv[1]
if phase == "start":  # no MPI yet
    time.sleep(60)
from mpi4py import MPI  # noqa: E402 (it calls MPI_Init)

world = MPI.COMM_WORLD
world.Barrier()
if phase == "collectives":
    end = time.monotonic() + 60
    while world.allreduce(time.monotonic() < end):
        pass
elif phase == "end":
    for _ in range(100):
        world.allreduce(1)
else:
    time.sleep(60)
