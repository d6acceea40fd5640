"""Make collectives until the job ends."""

import os
import time

import gcl
import popdist_py

popdist_py.init()
communicator = gcl.connect(
    local_replicas=popdist_py.getNumLocalReplicas(),
    global_offset=popdist_py.getReplicaIndexOffset(),
    global_replicas=popdist_py.getNumTotalReplicas(),
)
x = communicator.empty(500_000)
print(f"pid={os.getpid()} of={popdist_py.getInstanceIndex()} ", flush=True)
try:
    while True:
        communicator.all_reduce(x, out=x)
except gcl.PeerLost as error:
    print(f"heard {error}", flush=True)
    time.sleep(60)
