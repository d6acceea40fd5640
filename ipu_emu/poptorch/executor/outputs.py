"""Outputs: the anchors of a step as tensors in the structure that forward returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.tracing.argument_parsers import PARSERS
from ipu_emu.program.anchors import Anchor, StepShape

__all__ = ["OutputTensor", "anchor_array", "as_output", "rebuilt"]


class OutputTensor(torch.Tensor):
    """A result of a step, which has no gradient graph on the host."""

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise an error: gradients were computed and used on the device."""
        raise Error(
            "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, "
            "the backwards pass is performed automatically when invoking the model. If you're using an "
            "inferenceModel, you should use a trainingModel instead.",
            "poptorch_py_error",
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def anchor_array(step: StepShape, anchor: Anchor, tensor: Any) -> NDArray[Any]:
    """Return an array for an anchor: axis 0 is multiplied by the number of returned values."""
    everything = step.batches * step.accumulation * step.replicas
    factor = everything // step.divisor(anchor)
    if not tensor.shape:
        return np.empty(() if factor == 1 else (factor,), tensor.dtype.numpy)
    return np.empty((factor * tensor.shape[0], *tensor.shape[1:]), tensor.dtype.numpy)


def rebuilt(structure: Any, leaves: list[Any]) -> Any:
    """Return ``leaves`` in the structure that a trace described."""
    if isinstance(structure, int):
        return leaves[structure]
    kind, parts = structure
    if kind in PARSERS:
        original, tensors = parts
        return PARSERS[kind].reconstruct(original, iter([rebuilt(part, leaves) for part in tensors]))
    if issubclass(kind, Mapping):
        made = {key: rebuilt(part, leaves) for key, part in parts}
        if kind is dict:
            return made
        try:
            return kind(**made)
        except TypeError:
            return kind(made)
    values = [rebuilt(part, leaves) for part in parts]
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def as_output(array: NDArray[Any]) -> torch.Tensor:
    """Return an array as an output tensor."""
    return torch.from_numpy(array).as_subclass(OutputTensor)
