"""Use two communicators at the same time in two threads."""

import threading

import numpy as np

import gcl
from tests.gcl.helpers.instance import connect


def work(communicator, start, sums):
    for step in range(200):
        x = np.full((1, step + 1), step + start, np.float32)
        sums.append(float(communicator.all_reduce(x)[0, -1]))


for transport in ("shared_memory", "mpi"):
    sums = [[], []]
    communicators = [connect(transport=transport), connect(transport=transport, group=gcl.Group.none(2))]
    threads = [threading.Thread(target=work, args=(communicators[i], i, sums[i])) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums[0] == [2.0 * step for step in range(200)], sums[0]
    assert sums[1] == [step + 1.0 for step in range(200)], sums[1]
print("as each alone")
