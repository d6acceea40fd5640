"""Check that processes access each other's memory, and notice each other's end."""

import json
import os
import resource
import signal
import time

import numpy as np

import popdist_py
from gcl import TransportError
from gcl.transport.memory import shared_memory

popdist_py.init()
backend = popdist_py.host_backend()
rank, ranks = backend.rank, backend.size


def join(nbytes=1 << 20):
    return shared_memory.domain(rank=rank, ranks=ranks, all_gather=backend.all_gather, segment_bytes=nbytes)


domain = join()
domain.write_text(f"rank {rank}")
mine = domain.segment.empty((4,), np.dtype(np.float32))
mine[...] = rank
popdist_py.synchronize()
texts = [domain.read_text(peer) for peer in range(ranks)]
offset = domain.segment.offset_of(mine)


def at(address):
    return float(np.ctypeslib.as_array((__import__("ctypes").c_float * 4).from_address(address))[0])


values = [at(start + offset) for start in domain.arenas]
alive = [domain.alive(peer) for peer in range(ranks)]
popdist_py.synchronize()

# one rank that cannot map its peers is an error on all of them
limits = resource.getrlimit(resource.RLIMIT_AS)
if rank == 1:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limits[1]))
try:
    join(64 << 30)
    fault = "none"
except TransportError as error:
    fault = str(error)
resource.setrlimit(resource.RLIMIT_AS, limits)

popdist_py.synchronize()
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
deadline = time.monotonic() + 20
while domain.alive(2) and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps([texts, values, alive, domain.cores, fault, domain.alive(2)]))
os._exit(0)
