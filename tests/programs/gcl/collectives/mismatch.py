"""Make calls that differ; print the error of each rank."""

import json
import sys

import numpy as np

import popdist_py
from tests.gcl.helpers.instance import connect, error_of


def work(n, op="add"):
    return lambda: communicator.all_reduce(np.zeros((1, n), np.float32), op)


me = popdist_py.getInstanceIndex()
for transport in sys.argv[1:]:
    communicator = connect(transport=transport)
    said = [error_of(work(4, "max") if me == 2 else work(4)), error_of(work(4))]
    communicator = connect(transport=transport)
    said.append(error_of(work(4 + me)))
    communicator = connect(transport=transport)
    said.append(error_of(communicator.barrier if me else work(4)))
    print(json.dumps(said))
