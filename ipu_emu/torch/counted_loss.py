"""Counted loss: the mean over the targets that count, in a batch of several micro-batches and replicas.

The gradients of K micro-batches are averaged. The mean of each micro-batch by itself would weight a target by the
number of others in its micro-batch; the sum of each, divided by the K-th part of the batch's count, does not.
"""

from __future__ import annotations

from math import fsum
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

__all__ = ["CountedLoss"]

_LOSSES: dict[Any, Any] = {functional.cross_entropy: nn.CrossEntropyLoss, functional.nll_loss: nn.NLLLoss}


class CountedLoss(nn.Module):
    """The sum of ``loss`` divided by a count."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss

    @classmethod
    def of(cls, loss: Any, data: Any, pieces: int) -> CountedLoss | None:
        """Return the counted form of a loss over ``pieces`` micro-batches; None where the plain mean is the same."""
        chosen = _LOSSES[loss]() if loss in _LOSSES else loss
        if pieces == 1 or type(chosen) not in _LOSSES.values() or chosen.reduction != "mean":
            return None
        tensors = data.tensors if type(data) is TensorDataset else data
        if isinstance(tensors, tuple) and isinstance(tensors[-1], torch.Tensor) and chosen.weight is None:
            labels = tensors[-1]
            if labels.is_floating_point() or not bool((labels == chosen.ignore_index).any()):
                return None
        return cls(chosen)

    def forward(self, output: torch.Tensor, target: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """The loss of a micro-batch; targets that are probabilities all count."""
        own = self.loss
        if target.is_floating_point():
            mean: torch.Tensor = own(output, target)
            return mean
        more = {"label_smoothing": own.label_smoothing} if isinstance(own, nn.CrossEntropyLoss) else {}
        function = functional.cross_entropy if more else functional.nll_loss
        return function(
            output, target, weight=own.weight, ignore_index=own.ignore_index, reduction="sum", **more
        ) / count.reshape(())

    def count(self, target: torch.Tensor) -> float:
        """The number of targets that count, or the sum of their weights."""
        if target.is_floating_point():
            return float(len(target))
        counted = target[target != self.loss.ignore_index]
        return float(len(counted) if self.loss.weight is None else fsum(self.loss.weight[counted].tolist()))
