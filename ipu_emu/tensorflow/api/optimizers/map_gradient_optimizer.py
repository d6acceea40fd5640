"""Map gradient optimiser: changes gradients before the update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer
from ipu_emu.tensorflow.trace.strategies import dense

__all__ = ["MapGradientOptimizer"]


class MapGradientOptimizer(IpuOptimizer):
    """Changes every gradient by a function of gradient and variable."""

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(wrapped_optimizer, name)
        self._function = gradient_mapping_function

    def compute_gradients(self, *arguments: Any, **options: Any) -> Any:
        """Pairs of changed gradient and variable."""
        pairs: Sequence[Any] = super().compute_gradients(*arguments, **options)
        return [(None if g is None else self._function(dense(g), variable), variable) for g, variable in pairs]
