"""Report 30 steps, and fail."""

import time

import popdist_py

for step in range(30):
    popdist_py.report(step=step, samples=10, loss=1 / (step + 1))
    print("line", step, flush=True)
    time.sleep(0.1)
raise ValueError("in the end")
