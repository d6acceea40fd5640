"""Interrupt itself, and print whether that raises KeyboardInterrupt."""

import os
import signal

try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("caught")
