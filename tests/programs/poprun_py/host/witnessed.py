"""A parent, and its child with a witness in the parent's group; the child prints what the witness says in the end."""

import os
import signal
import sys
import time

sys.path.insert(0, sys.argv[1])

from poprun_py.host.witness import Witness

os.setpgid(0, 0)
holder = os.getpid()
if os.fork():
    signal.signal(signal.SIGTERM, lambda *_: None)
    while True:
        time.sleep(60)
witness = Witness()
os.setsid()
witness.ask()
assert witness.has_answered()
print(holder, flush=True)
while os.getppid() == holder:
    time.sleep(0.001)
witness.ask()
print(witness.has_answered(), flush=True)
witness.end()
