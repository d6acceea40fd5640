"""Make many random collectives and check each; print the resident bytes after 1/5, 3/5 and all of them."""

import gc
import os
import sys
from pathlib import Path

from gcl import Group
from tests.gcl.helpers.checks import check_random
from tests.gcl.helpers.instance import connect


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


calls = int(sys.argv[1])
communicators = [connect(group=eval(f"Group.{name}", {"Group": Group})) for name in sys.argv[2:]]
for seed in range(calls):
    if seed in (calls // 5, calls * 3 // 5):
        print(resident())
    check_random(communicators[seed * 7919 // 13 % 4], seed)
print(resident())
