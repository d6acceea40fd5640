"""Train on a feed whose preparation is slow."""

import time

import numpy as np

from ipu_emu.hostio import Feed


def slow(sample):
    time.sleep(0.012)
    return sample


with Feed(np.arange(4096.0), micro_batch=4, epochs=None, prepare=slow, workers=1) as feed:
    for step in feed:  # noqa: B007
        time.sleep(0.004)
