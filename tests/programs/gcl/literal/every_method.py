"""Check every method that moves real data, with the operators that are given."""

import sys

import numpy as np

import popdist_py
from gcl import Fabric, LinkConfiguration, Topology
from gcl.scheduling.methods.method import METHODS
from tests.gcl.helpers.instance import connect
from tests.gcl.literal.test_literal_path import check, draw

popdist_py.init()
total, instance = popdist_py.getNumTotalReplicas(), popdist_py.host_backend().rank
fabric = Fabric(total, 1, 1, Topology.TORUS, LinkConfiguration.BARLEY_TWIST)
cases = [(0, np.float32, "add"), (5003, np.float32, "add"), (5003, np.float16, "mean"), (7, np.int8, "max")]
ways = {
    "shared_memory": {},
    "mpi": {"transport": "mpi"},
    "hosts": {"host": str(instance // 2)},
}
for way in sys.argv[1].split(","):
    for method in map(str, METHODS):
        with connect(method=method, fabric=fabric, **ways[way]) as communicator:
            assert communicator.transport == way
            for n, dtype, op in cases:
                check(communicator, draw(total, n, dtype), fabric, method, op)
print("all equal")
