"""Record spans, and then: ``spans.py killed`` dies within one, ``spans.py forked`` continues in a child too."""

import os
import signal
import sys

from ipu_emu import trace

if sys.argv[1] == "killed":
    for _ in range(1000):
        with trace.span("step"):
            pass
    with trace.span("the last"):
        os.kill(os.getpid(), signal.SIGKILL)
else:
    with trace.span("parent"):
        if os.fork() == 0:
            with trace.span("child"):
                pass
            os._exit(0)
        os.wait()
