"""Make random collectives until one rank kills itself; print the errors of the others, and when they came."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import gcl
import popdist_py
from gcl import Group
from tests.gcl.helpers.checks import check_random
from tests.gcl.helpers.instance import connect

victim, delay, moment = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
communicators = [connect(group=eval(f"Group.{name}", {"Group": Group})) for name in sys.argv[4:]]
for seed in range(20):
    check_random(communicators[seed % 2], seed)


def kill():
    time.sleep(delay)
    moment.write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


if popdist_py.getInstanceIndex() == victim:
    threading.Thread(target=kill).start()
seed = 20
try:
    while True:
        check_random(communicators[seed % 2], seed)
        seed += 1
except gcl.PeerLost as error:
    print(json.dumps([time.time(), str(error)]), flush=True)
os._exit(0)  # MPI would wait for the rank that has ended
