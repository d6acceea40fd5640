"""Synchronize with the others; print where MPI keeps its memory, and wait."""

import os
import time
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
world.Barrier()
segments = {line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/" in line}
print("READY", world.rank, os.getpid(), *segments, flush=True)
time.sleep(60)
