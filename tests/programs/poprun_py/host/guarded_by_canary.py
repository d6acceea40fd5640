"""Start a parent with a child and a canary in its group; the child prints the final answer of the canary."""

import os
import signal
import socket
import sys
import time

sys.path.insert(0, sys.argv[1])

from poprun_py.host.canary import Canary, start_canary

os.setpgid(0, 0)
holder = os.getpid()
near, far = socket.socketpair()
if os.fork():
    near.close()
    signal.signal(signal.SIGTERM, lambda *_: None)
    start_canary(far)
    far.close()
    while True:
        time.sleep(60)
far.close()
os.setsid()
canary = Canary(near)
canary.ask()
assert canary.has_answered()
print(holder, flush=True)
while os.getppid() == holder:
    time.sleep(0.001)
canary.ask()
print(canary.has_answered(), flush=True)
