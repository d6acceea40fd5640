"""Crash as soon as any other instance has ended, as an MPI may."""

import os
import select
import signal
import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
server = socket.create_server((socket.gethostbyname(socket.gethostname()), 0))
addresses = world.allgather(server.getsockname())
peers = [socket.create_connection(tuple(address)) for address in addresses[: world.rank]]
peers += [server.accept()[0] for _ in addresses[world.rank + 1 :]]
world.Barrier()
print(f"READY {world.rank} {os.getpid()}: all have met", flush=True)
select.select(peers, [], [])
os.kill(os.getpid(), signal.SIGSEGV)
