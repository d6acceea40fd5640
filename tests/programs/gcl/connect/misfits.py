"""Connect with contradictory arguments: the same error on every rank."""

import gcl
import popdist_py
from tests.gcl.helpers.instance import connect, error_of

popdist_py.init()
rank, total = popdist_py.getInstanceIndex(), popdist_py.getNumTotalReplicas()
print(error_of(lambda: connect(global_offset=0)))
print(error_of(lambda: connect(global_replicas=total + rank)))
print(error_of(lambda: connect(global_replicas=total + 5)))
print(error_of(lambda: connect(transport="inprocess")))
print(error_of(lambda: connect(transport="mpi" if rank else "shared_memory")))
print(error_of(lambda: connect(group=gcl.Group.none(total) if rank else gcl.Group.all(total))))
print(error_of(lambda: connect().barrier()))
