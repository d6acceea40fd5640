"""Start three processes in separate sessions, and end; the processes in between end immediately."""

import os
import time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
