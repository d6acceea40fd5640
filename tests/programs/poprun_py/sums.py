"""Add up with GCL and with MPI for ROUNDS rounds, and print "right" at the end: ``sums.py ROUNDS``."""

import sys
import time

import gcl
import popdist_py

try:
    popdist_py.init()
    count, index = popdist_py.getNumTotalReplicas(), popdist_py.getReplicaIndexOffset()
    communicator = gcl.connect(timeout=60.0)
    x = communicator.empty(1000)
    for number in range(int(sys.argv[1])):
        wanted = count * number + count * (count - 1) // 2
        x[...] = number + index
        if (communicator.all_reduce(x) != wanted).any() or popdist_py.allReduce(number + index) != wanted:
            sys.exit(f"round {number} has a wrong sum")
        time.sleep(0.001)
except (gcl.GclError, popdist_py.PopdistError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
print("right")
