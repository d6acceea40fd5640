"""Reduce over shared memory and over MPI; print the addresses at which Python opens or connects to a port."""

import sys

addresses: list[object] = []


def listen(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.bind", "socket.connect"):
        addresses.append(arguments[1])


sys.addaudithook(listen)

import numpy as np  # noqa: E402

import gcl  # noqa: E402
import popdist_py  # noqa: E402

popdist_py.init()
for transport in ("shared_memory", "mpi"):
    communicator = gcl.connect(transport=transport)
    print(communicator.all_reduce(np.ones((1, 3), np.float32)).tolist())
    communicator.close()
print([address for address in addresses if isinstance(address, tuple)])
