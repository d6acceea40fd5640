"""Call two communicators in crossed order, each also from a thread that is late."""

import threading
import time

import popdist_py
from tests.gcl.helpers.instance import connect

A, B = connect(), connect()
me = popdist_py.host_backend().rank


def called(communicator, n):
    return communicator.all_reduce(communicator.empty(n))


A.barrier()
B.barrier()


def late():
    time.sleep(3)
    called(B if me == 0 else A, 4)


thread = threading.Thread(target=late)
thread.start()
called(A if me == 0 else B, 4)
thread.join()
print("fine")
