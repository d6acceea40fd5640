"""Call two communicators in crossed order; print the errors, and how long they took."""

import json
import time

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

A, B, C = connect(), connect(), connect()
me = popdist_py.host_backend().rank
started = time.monotonic()


def called(communicator, n):
    return communicator.all_reduce(communicator.empty(n))


def begun(communicator, n):
    return communicator.all_reduce_async(communicator.empty(n)).wait()


def crossed(call, first, second):
    first.barrier()
    order = (second, first) if me == 1 else (first, second)
    return [error_of(lambda c=communicator: call(c, 4 + me)) for communicator in order]


said = [crossed(called, A, B), crossed(begun, connect(), connect())]
waited = time.monotonic() - started
fine = error_of(C.barrier)
print(json.dumps([said, waited, fine]))
