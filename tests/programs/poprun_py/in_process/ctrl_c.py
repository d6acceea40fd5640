"""Interrupt itself, and say whether that is a KeyboardInterrupt."""

import os
import signal

try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("caught")
