"""Decision log: the decisions of a communicator, written to the standard logger "gcl".

GCL_LOG_LEVEL    logs
TRACE            the ring and the exchanges of every phase
DEBUG            every collective: bytes, data path, the methods that GCL would use and why, seconds
INFO             every communicator: transport, ranks, groups, fabric, methods
WARN, ERR        warnings, errors
OFF              nothing

Without the variable the logging configuration of the program applies. The level is read when a communicator is made;
a communicator that logs nothing does not use this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from gcl.core.data_path import DataPath
from gcl.core.prepared_call import PreparedCall
from gcl.core.request import Request
from gcl.cost.program_cost import price
from gcl.drawing.units import TimeUnit
from gcl.errors import ArgumentError
from gcl.scheduling.options import LogLevel, Options
from gcl.scheduling.program.text_diagram import exchange_table
from gcl.scheduling.schedule import Schedule
from gcl.transport.paths.hierarchical_path import HierarchicalPath
from gcl.transport.paths.memory_path import MemoryPath

_NAME, _TRACE = "gcl", 5
_LEVELS = {
    LogLevel.TRACE: _TRACE,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERR: logging.ERROR,
    LogLevel.OFF: logging.CRITICAL + 1,
}
_MAX_SCHEDULES = 64  # kept, as lines to log


def logger_of(options: Options) -> logging.Logger:
    """The logger, at the level of ``options`` if set; it writes to stderr unless the program has handlers."""
    logger = logging.getLogger(_NAME)
    if options.log_level is None:
        return logger
    logging.addLevelName(_TRACE, "TRACE")
    logger.setLevel(_LEVELS[options.log_level])
    if options.log_level is not LogLevel.OFF and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger


def listens(logger: logging.Logger) -> bool:
    """Whether ``logger`` logs more than Python's loggers do by default."""
    return logger.isEnabledFor(logging.INFO) or (
        logger.level != logging.NOTSET and logger.isEnabledFor(logging.ERROR)
    )


class Logged:
    """A path that logs its calls; ``planned`` gives the schedule that GCL would run, or runs, for a request."""

    def __init__(
        self, path: DataPath, rank: int, logger: logging.Logger, planned: Callable[[Request], Schedule | None]
    ) -> None:
        self.name, self._path, self._rank, self._logger = path.name, path, rank, logger
        #: empty if calls are logged: a prepared call bypasses ``run``
        self.prepared: dict[tuple[object, ...], PreparedCall] = (
            {} if logger.isEnabledFor(logging.DEBUG) else path.prepared
        )
        self._decided = lru_cache(_MAX_SCHEDULES)(lambda request: _decided(planned(request)))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of the path."""
        return self._path.empty(shape, dtype)

    def shared(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A zeroed tensor of the path, one for all ranks that share memory."""
        return self._path.shared(shape, dtype)

    def run(self, request: Request, x: np.ndarray, out: np.ndarray) -> None:
        """Run the request, and log it."""
        start = perf_counter()
        try:
            self._path.run(request, x, out)
        except Exception as error:
            self._logger.error("rank %d: %s failed: %s", self._rank, request, error)
            raise
        seconds = perf_counter() - start
        if not self._logger.isEnabledFor(logging.DEBUG):
            return
        nbytes, decided = request.count * request.dtype.itemsize, self._decided(request)
        self._logger.debug(
            "rank %d: %s, %s bytes per replica, %s%s; %s wall",
            *(self._rank, request, f"{nbytes:,}", _taken(self._path, x, out), decided[0], TimeUnit.us.text(seconds)),
        )
        for line in decided[1]:
            self._logger.log(_TRACE, "rank %d: %s", self._rank, line)

    def finish(self, call: PreparedCall, status: int) -> None:
        """Complete a prepared call."""
        self._path.finish(call, status)

    def refuse(self, error: ArgumentError) -> None:
        """Log that a call was refused, and pass the error on."""
        self._logger.error("rank %d: a call was refused: %s", self._rank, error)
        self._path.refuse(error)

    def fail(self, error: BaseException) -> None:
        """Log that a prepared call failed, and pass the error on."""
        self._logger.error("rank %d: a collective failed: %s", self._rank, error)
        self._path.fail(error)

    def close(self) -> None:
        """Log it, and close the path."""
        self._logger.info("rank %d closes its communicator", self._rank)
        self._path.close()


def _taken(path: DataPath, x: np.ndarray, out: np.ndarray) -> str:
    """The data path of the tensors."""
    memory = path.memory if isinstance(path, HierarchicalPath) else path
    if not isinstance(memory, MemoryPath):
        return f"through {path.name}"
    lie = ["allocated" if memory.near(tensor) is tensor else "private" for tensor in (x, out)]
    return f"through {path.name}, {lie[0]} input, {'in place' if out is x else f'{lie[1]} output'}"


def _decided(schedule: Schedule | None) -> tuple[str, list[str]]:
    """The schedule of GCL in one line, and in detail."""
    if schedule is None:
        return "", []
    phases = [f"{phase.program.collective} by {phase.program.method} ({phase.why})" for phase in schedule.phases]
    try:
        modelled = f", {TimeUnit.us.text(price(schedule).total.seconds)} modelled"
    except ArgumentError:
        modelled = ""
    details = list[str]()
    for program in schedule.programs:
        details.append(f"{program.collective}, {program.method}, {len(program.exchanges)} exchanges")
        if program.exchanges:
            details += exchange_table(program, 110).split("\n")
    return f"; GCL: {', '.join(phases)}{modelled}", details
