"""Mean losses: the cross-entropies in forward or in a loss of the user, whose means weight targets by micro-batch.

The mean over the targets that count in a micro-batch, averaged over micro-batches, is the mean over the batch only if
as many count in each. A loss that is passed as such is counted over the batch (``CountedLoss``); others are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FUNCTIONS = (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss)
_ADVICE = (
    "the mean over a batch of {pieces} micro-batches of replicas would weight targets unequally; give "
    "loss=torch.nn.CrossEntropyLoss(...) itself, which is counted over the batch, or use one micro-batch and replica"
)


class MeanLosses(TorchFunctionMode):
    """Context manager that notes the means of cross-entropies that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self._ignored: set[int] = set()
        self._weighted = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _FUNCTIONS:
            self._note(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _note(
        self,
        input: Any,
        target: Any,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        if reduction == "mean" and False not in (size_average, reduce) and not target.is_floating_point():
            self._ignored.add(ignore_index)
            self._weighted |= weight is not None

    def check(self, batch: Iterable[Any], pieces: int, *, local: int) -> None:
        """Raise ValueError if targets in ``batch``, which has ``local`` of the ``pieces``, would count unequally."""
        if pieces == 1 or not self._ignored:
            return
        if self._weighted:
            raise ValueError(f"the loss weights classes: {_ADVICE.format(pieces=pieces)}")
        for tensor in batch:
            if isinstance(tensor, torch.Tensor) and tensor.dim() and not tensor.is_floating_point():
                self._check(tensor.reshape(local, -1), pieces)

    def _check(self, parts: torch.Tensor, pieces: int) -> None:
        for value in self._ignored:
            counts = (parts == value).sum(1)
            if bool((counts != counts[0]).any()) or (len(parts) < pieces and bool(counts[0])):
                raise ValueError(
                    f"{int(counts.sum())} targets of a batch are ignored ({value}): {_ADVICE.format(pieces=pieces)}"
                )
