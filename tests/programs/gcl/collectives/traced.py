"""Make five all-reduces of ``traced.py [ELEMENTS]`` for which instance 1 is late, in a span of the program itself."""

import sys
import time

import gcl
import popdist_py
from ipu_emu import trace

popdist_py.init()
with gcl.connect() as communicator:
    x = communicator.empty(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    with trace.span("training"):
        for _ in range(5):
            time.sleep(0.05 * popdist_py.getInstanceIndex())
            communicator.all_reduce(x, out=x)
