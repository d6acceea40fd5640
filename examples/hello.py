"""Add numbers between replicas, in one process or in many.

python examples/hello.py
poprun-py --num-instances 2 --num-replicas 4 python examples/hello.py
"""

import gcl
import popdist_py as popdist

popdist.init()
replicas, offset = popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()
communicator = gcl.connect(
    local_replicas=replicas, global_offset=offset, global_replicas=popdist.getNumTotalReplicas()
)
x = communicator.empty(3)  # [local replicas, 3], in memory that the other processes can read
for row in range(replicas):
    x[row] = offset + row
communicator.all_reduce(x, out=x)
print("replicas", list(range(offset, offset + replicas)), "have", x.tolist())
