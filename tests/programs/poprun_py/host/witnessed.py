"""A parent with its child and a witness in its group; the child prints what the witness says in the end."""

import os
import signal
import socket
import sys
import time

sys.path.insert(0, sys.argv[1])

from poprun_py.host.witness import Witness, start_witness

os.setpgid(0, 0)
holder = os.getpid()
near, far = socket.socketpair()
if os.fork():
    near.close()
    signal.signal(signal.SIGTERM, lambda *_: None)
    start_witness(far)
    far.close()
    while True:
        time.sleep(60)
far.close()
os.setsid()
witness = Witness(near)
witness.ask()
assert witness.has_answered()
print(holder, flush=True)
while os.getppid() == holder:
    time.sleep(0.001)
witness.ask()
print(witness.has_answered(), flush=True)
