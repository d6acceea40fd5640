"""Make collectives until a process dies; check the errors of the others."""

import json
import os
import signal
import sys
import threading

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

hosts, transport = sys.argv[1:]
popdist_py.init()
rank = popdist_py.host_backend().rank
communicator = connect(host=hosts[rank], transport=transport)
x = communicator.empty(300_000)


def work():
    while True:
        communicator.all_reduce(x, out=x)


if rank == len(hosts) - 1:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
heard = error_of(work)
print(json.dumps([heard, error_of(communicator.barrier)]), flush=True)
os._exit(0)  # MPI would wait for the rank that has ended
