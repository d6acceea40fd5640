"""End a rank that has done its part of a collective; the others finish it."""

import sys
import time

import numpy as np

import popdist_py
from tests.gcl.helpers.instance import connect

me = popdist_py.getInstanceIndex()
x = np.full((1, 1_000_000), me, np.float32)
for transport in sys.argv[1:]:
    with connect(transport=transport) as communicator:
        if me == 1:
            time.sleep(0.5)
        assert not communicator.broadcast(x).any()
print("fine")
