"""Timings: when the inputs and outputs of the last steps were copied, measured on the host."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Latency", "latency", "perf_counters"]

#: Least, largest and average seconds.
Latency = tuple[float, float, float]


def latency(steps: Sequence[tuple[float, float, float]], *parts: int) -> Latency:
    """Return the seconds of some parts (0 inputs, 1 device, 2 outputs) of the steps; zeros without steps."""
    values = [sum(one[k] for k in parts) for one in steps]
    return (min(values), max(values), sum(values) / len(values)) if values else (0.0, 0.0, 0.0)


def perf_counters(
    steps: Sequence[tuple[float, float, float]], inputs: int, outputs: int
) -> dict[str, list[list[float]]]:
    """Return the seconds at which inputs and outputs were copied, for each tensor."""
    before, run = ([one[k] for one in steps] for k in (0, 1))
    done = [a + b for a, b in zip(before, run, strict=True)]
    return {
        "input": [[0.0] * len(before)] * max(inputs, 1),
        "input_complete": [before] * max(inputs, 1),
        "output": [done] * max(outputs, 1),
        "output_complete": [done] * max(outputs, 1),
    }
