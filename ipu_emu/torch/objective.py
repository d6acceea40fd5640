"""Objective: a module whose result is the loss that is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ipu_emu.poptorch.ops import identity_loss
from ipu_emu.torch.counted_loss import CountedLoss
from ipu_emu.torch.mean_losses import MeanLosses

__all__ = ["Objective"]


class Objective(torch.nn.Module):
    """``loss`` of the output of ``module`` and the last element of a batch; None: the loss that forward returns.

    A counted loss takes its count as a further element.

    A loss that forward returns is its result, its attribute or item ``loss``, or the first single number of a tuple.
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[..., torch.Tensor] | None) -> None:
        super().__init__()
        self.module = module
        self.loss = loss
        self.means = MeanLosses()

    def state_dict(self, *args: Any, **named: Any) -> dict[str, Any]:
        """The tensors of the module, by the names that the user knows."""
        state: dict[str, Any] = self.module.state_dict(*args, **named)
        return state

    def forward(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """The loss of a batch."""
        if isinstance(self.loss, CountedLoss):
            value = self.loss(self.module(*inputs[:-2], **named), *inputs[-2:])
        else:
            with self.means:
                value = self._loss(*inputs, **named)
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"the loss must be one number, and it is a {type(value).__name__}; return a tensor")
        if value.numel() != 1:
            shape = list(value.shape)
            raise ValueError(f"the loss must be one number, and it has the shape {shape}; use its mean")
        return identity_loss(value.reshape(()), "none")

    def _loss(self, *inputs: Any, **named: Any) -> Any:
        if self.loss is None:
            return _loss_in(self.module(*inputs, **named))
        if len(inputs) < 2:
            raise ValueError(
                "a batch has one element, and the loss needs two: the input and the target. Give (input, target), or "
                "loss=None where forward returns the loss"
            )
        return self.loss(self.module(*inputs[:-1], **named), inputs[-1])


def _loss_in(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, Mapping):
        return result.get("loss")
    if not isinstance(result, tuple | list):
        return result
    numbers = [
        one for one in result if isinstance(one, torch.Tensor) and one.numel() == 1 and one.is_floating_point()
    ]
    return numbers[0] if numbers else next(iter(result), None)
