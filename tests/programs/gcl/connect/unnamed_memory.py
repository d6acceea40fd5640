"""Check that shared memory has no name in any folder, and is freed with its communicator."""

import json
import os

from tests.gcl.helpers.instance import connect


def mapped():
    with open("/proc/self/maps") as file:
        return [line.split(maxsplit=5)[5].strip() for line in file if len(line.split()) > 5]


def work():
    with connect(transport="shared_memory") as communicator:
        communicator.all_reduce(communicator.empty(100_000))
        return mapped()


first = set(work())
descriptors = len(os.listdir("/proc/self/fd"))
for _ in range(20):
    work()
assert len(os.listdir("/proc/self/fd")) == descriptors
print(json.dumps([sorted(first), sorted(mapped())]))
