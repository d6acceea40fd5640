"""Send messages over MPI, and check order, tags, bounded waits and ranks that leave."""

import time

import numpy as np

import popdist_py

popdist_py.init()
from mpi4py import MPI  # noqa: E402

from gcl.transport.mpi.mpi_messages import MpiMessages  # noqa: E402

first, other = MpiMessages(), MpiMessages()
me, peer = first.rank, 1 - first.rank
assert (first.ranks, first.name) == (2, "mpi")

# two messages arrive in the order in which they were sent; zero bytes and large ones too
sizes = [3, 0, 1_000_000, 5]
sent = [np.full(size, index + 10 * me, np.float16) for index, size in enumerate(sizes)]
came = [np.empty(size, np.float16) for size in sizes]
pending = [first.receive(peer, array) for array in came] + [first.send(peer, array) for array in sent]
assert not first.wait(pending, timeout=250)
for index, array in enumerate(came):
    assert (array == index + 10 * peer).all(), index

# messages of another transport, or of the program, are not received as ours
word, ours = np.array([7.0]), np.zeros(1)
theirs = np.zeros(1)
foreign = [MPI.COMM_WORLD.Isend(word, peer), other.send(peer, np.array([8.0]))]
assert not first.wait([first.receive(peer, ours), first.send(peer, np.array([9.0]))], timeout=250)
assert ours[0] == 9
assert not other.wait([other.receive(peer, ours), foreign[1]], timeout=250)
MPI.COMM_WORLD.Recv(theirs, peer)
foreign[0].Wait()
assert (ours[0], theirs[0]) == (8, 7)

# a wait is bounded, and later messages do no harm
for size in (1, 100_000):
    late = np.zeros(size)
    started = time.monotonic()
    assert first.wait([first.receive(peer, late)], timeout=0.3) == [peer]
    assert time.monotonic() - started < 200
    popdist_py.synchronize()
    del late
    heap = [np.zeros(size) for _ in range(20)]
    assert not first.wait([first.send(peer, np.ones(size))], timeout=250)
    popdist_py.synchronize()
    popdist_py.synchronize()
    assert not any(array.any() for array in heap), "a message was written to memory that was given away"

# messages sent before a rank left arrive; others are known to be lost
if me:
    assert not other.wait([other.send(peer, np.ones(100_000))], timeout=250)
    other.close()
    other.close()
else:
    came = np.zeros(100_000)
    assert not other.wait([other.receive(peer, came)], timeout=250)
    assert came.all()
    assert other.wait([other.receive(peer, came)], timeout=250) == [peer]
    assert other.gone(peer)
    assert not first.gone(peer)
popdist_py.synchronize()

# transports that are deleted are closed
if me:
    del first
else:
    assert first.wait([first.receive(peer, ours)], timeout=250) == [peer]
    assert first.gone(peer)
print("fine")
