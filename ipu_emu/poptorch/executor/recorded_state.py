"""Recorded state: attributes of a module that its compiled program holds as constants, and how they change later."""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_
from typing import Any

import torch

#: The types of attributes whose values a program holds. A tensor counts as another only if it is another object.
_KINDS = (bool, int, float, str, torch.Tensor, type(None))
#: The attributes that PyTorch gives every module.
_OF_PYTORCH = frozenset(vars(torch.nn.Module()))


class RecordedState:
    """Numbers, texts and tensors that are attributes of ``module`` and its parts, and which parameters are trained.

    Forward was recorded with ``traced``, a shallow copy of ``module``.
    """

    def __init__(self, module: torch.nn.Module, traced: torch.nn.Module) -> None:
        recorded = [
            (f"{path}.{name}".lstrip("."), vars(part), name, value)
            for path, part in module.named_modules()
            for name, value in vars(traced if part is module else part).items()
            if name not in _OF_PYTORCH and isinstance(value, _KINDS)
        ]
        self._paths = [path for path, _, _, _ in recorded]
        self._places = [(attributes, name) for _, attributes, name, _ in recorded]
        self._values = [value for _, _, _, value in recorded]
        self._parameters = dict(module.named_parameters())
        self._trained, self._versions = self._of_parameters()

    def _of_parameters(self) -> tuple[list[bool], list[int]]:
        """Whether each parameter is trained, and how often it was changed on the host."""
        tensors = self._parameters.values()
        with torch._C.DisableTorchFunctionSubclass():  # which would fetch trained weights from the device
            return list(map(torch.Tensor.requires_grad.__get__, tensors)), list(
                map(torch.Tensor._version.__get__, tensors)
            )

    def host_is_device(self) -> None:
        """Note that host and device have the same weights now."""
        self._versions = self._of_parameters()[1]

    def changes(self) -> Iterator[str]:
        """Say what is no longer as it was recorded."""
        values = [attributes.get(name) for attributes, name in self._places]
        trained, versions = self._of_parameters()
        if not all(map(is_, values, self._values)):
            for path, was, now in zip(self._paths, self._values, values, strict=True):
                if was is not now and not _equal(was, now):
                    yield f"The attribute {path} of the module was compiled as {_text(was)} and is {_text(now)} now"
        if trained != self._trained:
            for name, was, now in zip(self._parameters, self._trained, trained, strict=True):
                if was is not now:
                    yield f"requires_grad of the parameter {name} was compiled as {was} and is {now} now"
        if versions != self._versions:
            changed = [name for name, a, b in zip(self._parameters, versions, self._versions, strict=True) if a != b]
            self._versions = versions
            yield f"{', '.join(changed)} changed on the host, and copyWeightsToDevice() was not called"


def _equal(was: Any, now: Any) -> bool:
    return type(now) is type(was) and not isinstance(now, torch.Tensor) and bool(now == was)


def _text(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
