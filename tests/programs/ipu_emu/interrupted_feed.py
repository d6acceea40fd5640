"""Read a feed with worker processes until it is interrupted."""

import time

from ipu_emu.hostio import Feed


def slow(sample):
    time.sleep(0.05)
    return sample


with Feed(list(range(1000)), prepare=slow, workers=2) as feed:
    next(feed)
    print("begun", flush=True)
    for _step in feed:
        pass
