"""Start three processes in sessions of their own, and end; those in between are gone at once."""

import os
import time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
