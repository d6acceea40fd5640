"""Check every collective with the operators and over the transports of the command line, for several groups."""

import sys

import gcl
import popdist_py
from tests.gcl.helpers.checks import check_all, check_collectives

popdist_py.init()
total = popdist_py.getNumTotalReplicas()
place = {
    "local_replicas": popdist_py.getNumLocalReplicas(),
    "global_offset": popdist_py.getReplicaIndexOffset(),
    "global_replicas": total,
}
groups = [gcl.Group.all(total), gcl.Group.orthogonal(total, 2)]
operators, transports = (argument.split(",") for argument in sys.argv[1:3])
every, starts = int(sys.argv[3]), 0
for transport in transports:
    for group in groups:
        with gcl.connect(**place, group=group, transport=transport, timeout=250) as communicator:
            assert communicator.transport == transport
            check_all(communicator, sizes=(0, 7, 1000), operators=operators, every=every, start=starts)
            check_collectives(communicator, 100_003, *(("float16", "mean") if starts % 2 else ("float32", "add")))
            starts += 1
print("all equal")
