"""Devices: the scopes that place ops on an IPU, a device type unknown to TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipu_emu.tensorflow.trace.frontend_state import frontend_state, pushed

_IPU = re.compile(r"(?:^|/)(?:device:)?IPU:?(\d+)?$", re.IGNORECASE)


def device_number(name: Any) -> int | None:
    """The number of the IPU device ``name``, None for other devices."""
    match = _IPU.search(name) if isinstance(name, str) else None
    return None if match is None else int(match.group(1) or 0)


def current_device() -> int | None:
    """The device of the innermost scope, None outside of scopes."""
    return devices[-1] if (devices := frontend_state().devices) else None


@contextmanager
def on_ipu(number: int) -> Iterator[None]:
    """Place ops on an IPU device."""
    state = frontend_state()
    for trace in state.traces:
        trace.device = number if trace.device is None else trace.device
    with pushed(state.devices, number):
        yield
