"""Extension: the additional state of a Keras model that was created in the scope of an IPU strategy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ipu_emu.tensorflow.keras.options import ModelOptions
from ipu_emu.tensorflow.trace.strategies import current_strategy

_ATTRIBUTE = "_ipu_extension"


@dataclass
class Extension:
    """The additional state of a model; ``strategy``: of the scope in which it was created."""

    strategy: Any
    options: ModelOptions = field(default_factory=ModelOptions)
    #: The callbacks of the current execution, and its first step.
    callbacks: Any = None
    step: int = 0

    @property
    def device(self) -> int:
        """The number of the device that the model runs on."""
        return int(self.strategy.device_ordinal)


def extend(model: Any) -> None:
    """Extend a model if it is created in the scope of a strategy."""
    strategy = current_strategy()
    if strategy is not None and strategy.enable_keras_extensions:
        model.__dict__.setdefault(_ATTRIBUTE, Extension(strategy))


def extension_of(model: Any) -> Extension | None:
    """The extension of a model; None for a model that runs on the host."""
    if current_strategy() is not None:
        extend(model)
    extension: Extension | None = model.__dict__.get(_ATTRIBUTE)
    return extension
