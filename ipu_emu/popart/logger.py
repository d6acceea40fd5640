"""Logger: PopART's loggers by name, with its names of levels, over Python's logging."""

from __future__ import annotations

import logging

from ipu_emu.errors import EmulatorError

_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
#: Names of the root logger.
_WHOLE = ("all", "popart")


class Logger(logging.LoggerAdapter[logging.Logger]):
    """Logs by ``debug``, ``info``, ``warn``, ``error`` and ``critical``; messages below its level are dropped."""

    def setLevel(self, level: int | str) -> None:
        """Set the level: TRACE, DEBUG, INFO, WARN, ERR, CRITICAL or OFF; raise EmulatorError for any other."""
        if level not in _LEVELS:
            raise EmulatorError(f"There is no level '{level}'; use one of {', '.join(_LEVELS)}")
        super().setLevel(_LEVELS[str(level)])

    warn = logging.LoggerAdapter.warning


def getLogger(name: str = "all") -> Logger:
    """The logger of a part of PopART; by default that of all of it."""
    return Logger(logging.getLogger("popart" if name in _WHOLE else f"popart.{name}"))
