"""Connect while one instance does not; the error names it."""

import os
import time

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

popdist_py.init()
rank = popdist_py.host_backend().rank
if rank == 1:
    time.sleep(8)
print(error_of(lambda: connect(timeout=0.1)), flush=True)
os._exit(0)  # MPI has pending calls without a partner
