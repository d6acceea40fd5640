"""Make calls that one rank refuses; print the error of each rank."""

import json
import os
import sys
import time

import numpy as np

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

popdist_py.init()
rank = popdist_py.host_backend().rank
bad, x = np.ones((2, 4), np.float32), np.ones((1, 300_000), np.float32)
small = np.ascontiguousarray(x[:, :100])


def heard(hosts, transport, odd):
    communicator = connect(host=hosts[rank], transport=transport)
    said = []
    for tensor in (small, x, small):
        said.append(error_of(lambda: communicator.all_reduce(bad)))  # all of them
        said.append(float(communicator.all_reduce(tensor)[0, 0]))
        said.append(float(communicator.all_reduce(tensor, out=tensor.copy())[0, 1]))
    communicator.barrier()
    started = time.monotonic()
    said.append(error_of(lambda: communicator.all_reduce(bad if rank == odd else small)))
    return said, time.monotonic() - started


print(json.dumps([heard(*case) for case in json.loads(sys.argv[1])]), flush=True)
time.sleep(1)
os._exit(0)
