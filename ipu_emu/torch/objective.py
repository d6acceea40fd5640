"""Objective: a module whose result is the loss that is trained, and the means of losses in it, which are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import fsum
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.data import TensorDataset

from ipu_emu.poptorch.ops import identity_loss

_LOSSES: dict[Any, Any] = {functional.cross_entropy: nn.CrossEntropyLoss, functional.nll_loss: nn.NLLLoss}
_ADVICE = (
    "the mean over a batch of {pieces} micro-batches of replicas would weight targets unequally; give "
    "loss=torch.nn.CrossEntropyLoss(...) itself, which is counted over the batch, or use one micro-batch and replica"
)


class CountedLoss(nn.Module):
    """The sum of ``loss`` divided by a count.

    The gradients of K micro-batches are averaged. The mean of each micro-batch by itself would weight a target by the
    number of others in its micro-batch; the sum of each, divided by the K-th part of the batch's count, does not.
    """

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss

    @classmethod
    def of(cls, loss: Any, data: Any, pieces: int) -> CountedLoss | None:
        """Return the counted form of a loss over ``pieces`` micro-batches; None where the plain mean is the same."""
        function = _LOSSES[loss]() if loss in _LOSSES else loss
        if pieces == 1 or type(function) not in _LOSSES.values() or function.reduction != "mean":
            return None
        tensors = data.tensors if type(data) is TensorDataset else data
        if isinstance(tensors, tuple) and isinstance(tensors[-1], torch.Tensor) and function.weight is None:
            labels = tensors[-1]
            if labels.is_floating_point() or not bool((labels == function.ignore_index).any()):
                return None
        return cls(function)

    def forward(self, output: torch.Tensor, target: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """The loss of a micro-batch; targets that are probabilities all count."""
        own = self.loss
        if target.is_floating_point():
            value: torch.Tensor = own(output, target)
            return value
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
        item for item in result if isinstance(item, torch.Tensor) and item.numel() == 1 and item.is_floating_point()
    ]
    return numbers[0] if numbers else next(iter(result), None)


class MeanLosses(TorchFunctionMode):
    """Context manager that notes the means of cross-entropies that are computed.

    The mean over the targets that count in a micro-batch, averaged over micro-batches, is the mean over the batch
    only if as many count in each. A loss that is passed as such is counted over the batch (``CountedLoss``).
    """

    def __init__(self) -> None:
        super().__init__()
        self._ignored: set[int] = set()
        self._weighted = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _LOSSES:
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
