"""Trace: records the activity of a process, with times, in its own file while it runs.

    DIR/1699.a3f0c2.trace             one file per process: its records, and what their names mean
    DIR/1699.a3f0c2.0.profile.json    one per program that the process compiled: what it needs, all of it modelled;
                                      beside the executable instead, if that is a file

Nothing is recorded unless ``IPU_EMU_TRACE`` names a folder (``poprun-py --trace DIR`` sets it), or ``start`` is
called.
"""

from popdist_py.trace.network_rate import MEMORY_RATE, NETWORK, record_memory_rate, record_network
from popdist_py.trace.process_recorder import boot, counter, flow, instant, recorder, span, start, stop
from popdist_py.trace.recorder import Recorder, Sequence, Span
from popdist_py.trace.records import (
    CATEGORIES,
    PROFILE,
    PROFILE_SUFFIX,
    SUFFIX,
    WEIGHTS,
    Category,
    Kind,
    dropped_records,
)

__all__ = [
    "CATEGORIES", "MEMORY_RATE", "NETWORK", "PROFILE", "PROFILE_SUFFIX", "SUFFIX", "WEIGHTS", "Category", "Kind",
    "Recorder", "Sequence", "Span", "boot", "counter", "dropped_records", "flow", "instant", "record_memory_rate",
    "record_network", "recorder", "span", "start", "stop",
]  # fmt: skip
