"""Wait for ranks that do not call; print the error."""

import sys

import popdist_py
from tests.gcl.helpers.instance import connect, error_of

for transport in sys.argv[1:]:
    communicator = connect(transport=transport, timeout=2.0)
    if popdist_py.host_backend().rank % 2 == 0:
        print(error_of(communicator.barrier))
    popdist_py.synchronize()
