"""Hold the partition "p" of 4 IPUs for a moment, and print how it was assigned: ``uses_partition.py FILE``."""

import sys

from poprun_py.vipu.partition import PartitionRequest, Server
from poprun_py.vipu.partition_file import PartitionFile

with PartitionFile(sys.argv[1], print).held(PartitionRequest(Server("localhost", 8090, 5.0), "p", 4)) as decision:
    print(decision.action)
