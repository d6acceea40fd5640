"""Log level, devices and profiling: settings and queries that are independent of a model."""

from __future__ import annotations

import os
from typing import Any

from ipu_emu.session.options.without_effect import say_without_effect

_LEVELS = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERR": 4, "OFF": 6}
_MODEL = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")


def setLogLevel(level: str | int) -> None:
    """Check a log level; a warning says that it has no effect: the face writes no log."""
    if isinstance(level, int):
        if level not in _LEVELS.values():
            raise ValueError(f"Invalid log level integer {level}")
        level = next(name for name, number in _LEVELS.items() if number == level)
    if level not in _LEVELS:
        raise ValueError(f"Unknown log level: {level}. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    say_without_effect("poptorch", ["setLogLevel"])


def uses_ipu_model() -> bool:
    """Whether the environment chooses an IPU Model."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in _MODEL)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether the emulated system has this many IPUs; False with an IPU model."""
    return not uses_ipu_model() and 0 < num_ipus <= 64


def ipuHardwareVersion() -> int:
    """Return the version of the IPUs."""
    if uses_ipu_model():
        raise AssertionError("No IPU hardware available on this system")
    return 2


class Channel:
    """A channel of trace points, which are not kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        say_without_effect("poptorch.profiling", ["Channel"])

    def tracepoint(self, name: str) -> Channel:
        """Return a context for one trace point."""
        return self

    def instrument(self, obj: Any, *methods: str) -> None:
        """Do nothing."""

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *error: object) -> None:
        return None
