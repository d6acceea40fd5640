"""Use the MPI of the launcher, as the argument says: ``world_of_mpi.py sum|wait``."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
if sys.argv[1] == "sum":
    total = world.allreduce(world.rank + 1)
    print(world.size, total, MPI.get_vendor()[0].replace(" ", ""))
else:  # until instance 0 gets a line
    world.Barrier()
    print("met", flush=True)
    if world.rank == 0:
        input()
    world.Barrier()
