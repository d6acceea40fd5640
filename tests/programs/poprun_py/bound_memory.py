"""Binds itself to a CPU and a NUMA node, and reports what it and a program that it starts are bound to."""

import os
import sys

from poprun_py.numa.binding import bind
from poprun_py.numa.placement import Placement
from tests.poprun_py.numa.test_placement import memory_policies

cpu, node = map(int, sys.argv[1:])
assert memory_policies() == {"default"}
print(repr(bind(Placement((cpu,), (node,)))), os.sched_getaffinity(0), memory_policies(), flush=True)
if os.fork() == 0:
    os.execvp("sh", ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; grep -c bind /proc/self/numa_maps"])
os.wait()
