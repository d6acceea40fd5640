"""Make five all-reduces for which instance 1 is late, inside a span of the program's own."""

import time

import gcl
import popdist_py
from ipu_emu import trace

popdist_py.init()
with gcl.connect() as communicator:
    x = communicator.empty(1000)
    with trace.span("training"):
        for _ in range(5):
            time.sleep(0.05 * popdist_py.getInstanceIndex())
            communicator.all_reduce(x, out=x)
