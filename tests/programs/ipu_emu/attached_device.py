"""Claim IPUs in the folder of the command line and keep them; print the claimed ones."""

import sys

from ipu_emu.hardware import Claims, Occupancy, System

occupancy, me = Occupancy(Claims.on(System.pod(16), sys.argv[1])), type("Me", (), {})()
for ipus in ([0, 1], [1, 2], [2, 3]):
    print(occupancy.take(me, ipus) if ipus != [2, 3] else occupancy.take(type("You", (), {})(), ipus), flush=True)
print(occupancy.holder(0), occupancy.holder(2) is not None, flush=True)
sys.stdin.readline()
