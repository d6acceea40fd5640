"""Use the communicator of a parent process in its child."""

import os
import time

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

communicator = connect()
x = communicator.empty(4)
communicator.all_reduce(x, out=x)
x[:] = popdist_py.getInstanceIndex() + 1
if popdist_py.getInstanceIndex() == 0 and os.fork() == 0:
    print(error_of(lambda: communicator.all_reduce(x, out=x)), flush=True)
    os._exit(0)
if popdist_py.getInstanceIndex() == 0:
    os.wait()
    time.sleep(0.5)  # the other one looks meanwhile whether its peer has left
print(communicator.all_reduce(x)[0, 0], flush=True)
