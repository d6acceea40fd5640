"""Trained state: weights, optimiser states and scalars on the device, as checkpoints save and restore them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.device_program import DeviceProgram

__all__ = ["TrainedState"]


class TrainedState:
    """``changed`` is called when values were restored, which the module does not have yet."""

    def __init__(self, program: DeviceProgram, changed: Callable[[], None]) -> None:
        self._program, self._changed = program, changed

    @property
    def engine(self) -> Engine:
        """The engine, which holds the values."""
        if self._program.engine is None:
            raise Error("Device is not attached")
        return self._program.engine

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set the values."""
        self._program.restore(values)
        self._changed()
