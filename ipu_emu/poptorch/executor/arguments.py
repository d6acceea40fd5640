"""Arguments and results of a call: the tensors in them, at any depth, and the constants."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.poptorch.errors import Error, refusal
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.argument_parsers import PARSERS
from ipu_emu.program.anchors import Anchor, StepShape


class Arguments:
    """The arguments of the first call, bound to the parameters of ``forward``."""

    def __init__(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.signature = inspect.signature(forward)
        self.positional, self.named = bound(self.signature, args, kwargs)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors in order."""
        return [leaf for leaf in leaves([self.positional, self.named]) if isinstance(leaf, torch.Tensor)]

    def rebuilt(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with other tensors."""
        source = iter(tensors)
        return [_filled(structure, source) for structure in self.positional], {
            name: _filled(structure, source) for name, structure in self.named.items()
        }

    def matching(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of a later call; raise Error if it differs from the first call."""
        positional, named = bound(self.signature, args, kwargs)
        if len(positional) != len(self.positional):
            raise Error(
                "Number of positional arguments mismatch: expected "
                f"{len(self.positional)} arguments but got {len(positional)}."
            )
        _match_keys("keyword arguments", self.named, named)
        matches: list[torch.Tensor] = []
        names = list(self.signature.parameters)
        for number, (old, new) in enumerate(zip(self.positional, positional, strict=True)):
            _match(names[number] if number < len(names) else f"args[{number}]", old, new, matches)
        for name, old in self.named.items():
            _match(name, old, named[name], matches)
        return matches


def bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Bind a call to a signature, with its defaults; raise PopTorch's error if that is impossible."""
    parameters = signature.parameters
    plain = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if len(args) > len(plain) and not variadic:
        raise AssertionError(f"Too many arguments provided: expected {len(plain)}, found {len(args)}")
    for name in kwargs:
        if name not in parameters and not keywords:
            raise AssertionError(f"{name} is not a valid parameter. forward takes {', '.join(parameters)}")
        if name in [p.name for p in plain[: len(args)]]:
            raise AssertionError(f"Parameter {name} was passed more than once")
    for p in [*plain[len(args) :], *(q for q in parameters.values() if q.kind is q.KEYWORD_ONLY)]:
        if p.name not in kwargs and p.default is p.empty:
            raise refusal(f"Mandatory parameter {p.name} missing")
    arguments = signature.bind(*args, **kwargs)
    arguments.apply_defaults()
    return list(arguments.args), dict(arguments.kwargs)


def leaves(value: Any) -> Any:
    """Yield the leaves of nested tuples, lists and dicts."""
    if type(value) in PARSERS:
        yield from PARSERS[type(value)].yieldTensors(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def _filled(value: Any, source: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(source)
    if type(value) in PARSERS:
        return PARSERS[type(value)].reconstruct(value, source)
    if isinstance(value, Mapping):
        return _mapping(type(value), {key: _filled(part, source) for key, part in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_filled(part, source) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(_filled(part, source) for part in value)
    return value


def _mapping(kind: type, parts: dict[Any, Any]) -> Any:
    try:
        return kind(**parts)
    except TypeError:
        return kind(parts)


def _match(name: str, old: Any, new: Any, matches: list[torch.Tensor]) -> None:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if old.dtype != new.dtype:
            raise Error(f"Data type mismatch for {name}: expected {old.dtype} but got {new.dtype}.")
        if old.shape != new.shape:
            raise Error(f"Shape mismatch for {name}: expected {old.shape} but got {new.shape}.")
        matches.append(new)
        return
    if type(old) is not type(new):
        raise Error(f"Type mismatch for {name}: expected {type(old)} but got {type(new)}.")
    if type(old) in PARSERS:
        pairs = zip(leaves(old), leaves(new), strict=True)
        for number, (a, b) in enumerate(pairs):
            _match(f"{name}[{number}]", a, b, matches)
    elif isinstance(old, Mapping):
        _match_keys(name, old, new)
        for key, part in old.items():
            _match(f"{name}[{key!r}]", part, new[key], matches)
    elif isinstance(old, tuple | list):
        if len(old) != len(new):
            raise Error(f"Length mismatch for {name}: expected {len(old)} but got {len(new)}.")
        for number, (a, b) in enumerate(zip(old, new, strict=True)):
            _match(f"{name}[{number}]", a, b, matches)
    elif isinstance(old, int | float | str | bool) and old != new:
        raise Error(f"Value mismatch for {name}: expected {old} but got {new}.")


def _match_keys(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    extra, missing = [key for key in new if key not in old], [key for key in old if key not in new]
    if extra or missing:
        raise Error(
            f"Keys mismatch for {name}:"
            + (f" Unexpected arguments: {', '.join(map(str, extra))}." if extra else "")
            + (f" Missing arguments: {', '.join(map(str, missing))}." if missing else "")
        )


def cleaned(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return an input as a contiguous, detached tensor."""
    if not tensor.is_contiguous():
        warnings.warn(f"Input {name} is not contiguous and is copied", stacklevel=4)
        tensor = tensor.contiguous()
    if tensor.requires_grad:
        warnings.warn(f"Input tensor {name} has requires_grad=True and is detached from its graph", stacklevel=4)
    return tensor.detach()


def first_micro_batch(tensor: torch.Tensor, options: Options) -> torch.Tensor:
    """Return the first micro-batch of an input; raise AssertionError if it does not hold D A R / G of them."""
    batches = options.batches
    if not tensor.dim():
        if batches != 1:
            raise AssertionError(
                f"Invalid batch dimension: a 0-dimensional input needs one micro-batch per call, not {batches}"
            )
        return tensor
    if tensor.shape[0] % batches:
        o = options
        raise AssertionError(
            f"Invalid batch dimension: In the input {tuple(tensor.shape)}, the batch dimension "
            f"({tensor.shape[0]}) must be a multiple of Options.deviceIterations({o.device_iterations}) * "
            f"(Options.replicationFactor({o.replication_factor}) / inputGroupSize({o.input_group_size})) * "
            f"Options.Training.gradientAccumulation({o.Training.gradient_accumulation}) = {batches} because it "
            "is used to calculate the size of the micro-batch that the model sees"
        )
    return tensor[: tensor.shape[0] // batches]


class OutputTensor(torch.Tensor):
    """A result of a step, which has no gradient graph on the host."""

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise an error: gradients were computed and used on the device."""
        raise refusal(
            "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, "
            "the backwards pass is performed automatically when invoking the model. If you're using an "
            "inferenceModel, you should use a trainingModel instead."
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
        return _mapping(kind, {key: rebuilt(part, leaves) for key, part in parts})
    values = [rebuilt(part, leaves) for part in parts]
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def as_output(array: NDArray[Any]) -> torch.Tensor:
    """Return an array as an output tensor."""
    return torch.from_numpy(array).as_subclass(OutputTensor)
