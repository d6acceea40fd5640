"""Wrapped modules: a module whose trained weights are on the device until something reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ipu_emu.poptorch.tracing.replica_grouping import NAME, ReplicaGrouping

_LINK = "_poptorch_executor"
_READS = frozenset(("forward", "_parameters", "_buffers", "_modules"))


def _sync(owner: Any) -> None:
    executor = object.__getattribute__(owner, "__dict__").get(_LINK)
    if executor is not None:
        executor.copyWeightsToHostIfNeeded()


def executor_of(module: Any) -> Any:
    """Return the training executor that a module was wrapped for, if any."""
    return module.__dict__.get(_LINK)


class _LazyTensor:
    """Mix-in of tensors whose use fetches trained weights first."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            _sync(self)
        return super().__getattribute__(name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for argument in args:
            if isinstance(argument, _LazyTensor):
                _sync(argument)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        copy = _plain(self)
        memory[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain(self).__reduce_ex__(protocol)


def _plain(tensor: Any) -> torch.Tensor:
    _sync(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        copy = tensor.detach().clone().as_subclass(torch.Tensor)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
        return copy


class PoptorchParameter(_LazyTensor, torch.nn.Parameter):
    """A parameter of a wrapped module."""


class PoptorchBuffer(_LazyTensor, torch.Tensor):
    """A buffer of a wrapped module."""


def _subclass(kind: type) -> type:
    original: Any = kind

    def getattribute(self: Any, name: str) -> Any:
        if name in _READS:
            _sync(self)
        return original.__getattribute__(self, name)

    def needed(self: Any) -> bool:
        executor = self.__dict__.get(_LINK)
        return bool(executor.copyWeightsToHostIfNeeded()) if executor is not None else False

    def destroy(self: Any) -> None:
        executor = self.__dict__.get(_LINK)
        if executor is not None:
            executor.destroy()

    def state(self: Any) -> dict[str, Any]:
        _sync(self)
        return {name: value for name, value in self.__dict__.items() if name != _LINK}

    def reduce(self: Any, protocol: Any) -> Any:
        return _restored, (original, state(self))

    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = original.state_dict(self, *args, **kwargs)
        for name, value in state.items():
            if isinstance(value, _LazyTensor):
                state[name] = value.detach().as_subclass(torch.Tensor)
        return state

    members: dict[str, Callable[..., Any]] = {
        "__getattribute__": getattribute,
        "__reduce_ex__": reduce,
        "copyWeightsToHostIfNeeded": needed,
        "destroy": destroy,
        "state_dict": state_dict,
    }
    return type(f"Poptorch{kind.__name__}", (kind,), dict(members) | {"_poptorch_original": kind})


def _restored(kind: type, state: dict[str, Any]) -> Any:
    """A module of its own class with the state of a wrapped one."""
    module: Any = object.__new__(kind)
    module.__dict__.update(state)
    return module


def wrap(module: Any, executor: Any) -> None:
    """Turn ``module``, its parameters and its buffers into ones that fetch trained weights when they are read."""
    if hasattr(type(module), "_poptorch_original"):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    for tensor in [*module.parameters(), *module.buffers()]:
        kind = PoptorchParameter if isinstance(tensor, torch.nn.Parameter) else PoptorchBuffer
        if type(tensor) in (torch.nn.Parameter, torch.Tensor):
            tensor.__class__ = kind
        tensor.__dict__[_LINK] = executor
        tensor.__dict__.setdefault(NAME, ReplicaGrouping())
    module.__class__ = _subclass(type(module))
    module.__dict__[_LINK] = executor


def unwrap(module: Any) -> None:
    """Undo ``wrap``."""
    original = getattr(type(module), "_poptorch_original", None)
    if original is None:
        return
    module.__dict__.pop(_LINK, None)
    module.__class__ = original
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.__dict__.pop(_LINK, None)
        tensor.__dict__.pop(NAME, None)
        if type(tensor) is PoptorchParameter:
            tensor.__class__ = torch.nn.Parameter
        elif type(tensor) is PoptorchBuffer:
            tensor.__class__ = torch.Tensor


def offer_groupings(module: torch.nn.Module) -> None:
    """Add ``replicaGrouping`` to the parameters of a module."""
    for tensor in module.parameters():
        tensor.__dict__.setdefault(NAME, ReplicaGrouping())


def withdraw_groupings(module: torch.nn.Module, *, all_of_them: bool) -> None:
    """Undo ``offer_groupings`` for the parameters without groups, or for all."""
    for tensor in module.parameters():
        grouping = tensor.__dict__.get(NAME)
        if all_of_them or grouping is None or grouping.groups is None:
            tensor.__dict__.pop(NAME, None)
