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


class Logger:
    """Logs messages; those below the level of the logger are dropped."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger("popart" if name in _WHOLE else f"popart.{name}")

    def setLevel(self, level: str) -> None:
        """Set the level: TRACE, DEBUG, INFO, WARN, ERR, CRITICAL or OFF; raise EmulatorError for any other."""
        if level not in _LEVELS:
            raise EmulatorError(f"There is no level '{level}'; use one of {', '.join(_LEVELS)}")
        self._logger.setLevel(_LEVELS[level])

    def debug(self, text: str) -> None:
        """Log ``text`` at level DEBUG."""
        self._logger.debug(text)

    def info(self, text: str) -> None:
        """Log ``text`` at level INFO."""
        self._logger.info(text)

    def warn(self, text: str) -> None:
        """Log ``text`` at level WARN."""
        self._logger.warning(text)

    def error(self, text: str) -> None:
        """Log ``text`` at level ERR."""
        self._logger.error(text)

    def critical(self, text: str) -> None:
        """Log ``text`` at level CRITICAL."""
        self._logger.critical(text)


def getLogger(name: str = "all") -> Logger:
    """The logger of a part of PopART; by default that of all of it."""
    return Logger(name)
