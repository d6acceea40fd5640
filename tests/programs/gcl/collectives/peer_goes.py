"""End a rank while the others wait for it; print their errors."""

import json
import os
import signal
import sys
import time

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

how, *transports = sys.argv[1:]
communicators = [connect(transport=transport) for transport in transports]
for communicator in communicators:
    communicator.all_reduce(communicator.empty(1000))
if popdist_py.host_backend().rank == 1:
    time.sleep(0.5)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "close":
        [communicator.close() for communicator in communicators]
    if how == "forget":
        del communicator
        communicators.clear()
        popdist_py.host_backend().barrier()  # continues, so that no peer notices its end
    if how == "exit":
        sys.exit(0)
    if how == "raise":
        raise ValueError("the data is bad")
else:
    for communicator in communicators:
        x, started = communicator.empty(1000), time.monotonic()
        heard = error_of(lambda c=communicator, x=x: c.all_reduce(x, out=x))
        waited = time.monotonic() - started
        print(json.dumps([heard, waited, error_of(communicator.barrier)]), flush=True)
    if how == "forget":
        popdist_py.host_backend().barrier()
    if how in ("die", "raise"):
        os._exit(0)  # MPI would wait for the rank that has ended
