"""End a forked child, which must not end the communicator of its parent."""

import os
import sys

import numpy as np

import popdist_py
from tests.gcl.helpers.instance import connect

communicator = connect()
if popdist_py.getInstanceIndex() == 1:
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
popdist_py.synchronize()
print(communicator.all_reduce(np.ones((1, 3), np.float32)).tolist())
