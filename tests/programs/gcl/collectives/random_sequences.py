"""Check random collectives over each transport and kind of group."""

import gcl
from tests.gcl.helpers.checks import check_random
from tests.gcl.helpers.instance import connect

for transport in ("shared_memory", "mpi"):
    for group in (gcl.Group.all(6), gcl.Group.orthogonal(6, 3)):
        communicator = connect(transport=transport, group=group)
        for seed in range(60):
            check_random(communicator, seed)
print("fine")
