"""Functions for use in forward: losses, printing, and hints that do not affect results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ipu_emu.poptorch.enums import MatMulSerializationMode, MultiConvPlanType, OverlapMode
from ipu_emu.poptorch.errors import Error, refusal
from ipu_emu.poptorch.options.option_group import of_kind
from ipu_emu.poptorch.tracing.current_trace import current_trace, intercepted
from ipu_emu.session.options.without_effect import say_without_effect


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Mark ``x`` as the loss, reduced by "sum" or "mean", or (with "none") its sum, and return the reduced value."""
    if reduction not in ("sum", "mean", "none"):
        raise AssertionError("Unsupported reduction type!")
    loss = x.sum() if reduction == "sum" else x.mean() if reduction == "mean" else x * 1
    trace = current_trace()
    if trace is not None:
        trace.mark(loss)
    return loss


def isRunningOnIpu() -> bool:
    """Whether forward is being traced for the device."""
    return current_trace() is not None


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Print the tensor, and its gradient, in every step; return it."""
    formats = {"auto": 0, "fixed": 1, "scientific": 2, "none": 3}
    if float_format not in formats:
        raise refusal(f"float_format '{float_format}' is not one of {', '.join(formats)}")
    attributes = {
        "title": title,
        "gradient_title": f"{title}_gradient" if title else "",
        "print_gradient": int(print_gradient),
        "summariseThreshold": summarise_threshold,
        "edgeItems": edge_items,
        "maxLineWidth": max_line_width,
        "digits": digits,
        "floatFormat": formats[float_format],
        "separator": separator,
        "openBracket": open_bracket,
        "closeBracket": close_bracket,
    }
    return intercepted("print_tensor", {"input": tensor, "attributes": attributes}, lambda: tensor * 1)


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor."""
    return tensor * 1


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Return the tensor; a warning says that the memory of a product is not limited."""
    say_without_effect("poptorch", ["set_available_memory"])
    return tensor


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Return the tensors; a warning says that they are not recomputed."""
    say_without_effect("poptorch", ["recomputationCheckpoint"])
    checkpoints = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    if not all(isinstance(tensor, torch.Tensor) for tensor in checkpoints):
        raise ValueError("All inputs must be tensors")
    if len(tensors) == 1:
        return tensors[0]
    return tuple(checkpoints)


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """Return the product; serialisation does not affect results."""
    if not isinstance(mode, MatMulSerializationMode):
        raise AssertionError("Must be a MatMulSerializationMode instance")
    if mode is not MatMulSerializationMode.Disabled:
        say_without_effect("poptorch", ["serializedMatMul"])
    return torch.matmul(lhs, rhs)


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors; overlap changes no number."""
    _check_overlap(mode, output=False)
    return input_tensors


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors; overlap changes no number."""
    _check_overlap(mode, output=True)
    return output_tensors


def _check_overlap(mode: OverlapMode, *, output: bool) -> None:
    overlaps = of_kind(mode, OverlapMode) is not OverlapMode.NoOverlap
    trace = current_trace()
    if trace is not None and overlaps:
        trace.overlaps.append("output" if output else "input")


def _checked_list(inputs: Any) -> list[torch.Tensor]:
    if not isinstance(inputs, list):
        raise ValueError("expected input to be a list (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                "expected input to be a list of tensors (Object contained in list at index "
                f"{index} is not torch.tensor)"
            )
    return inputs


def for_loop(count: int, body: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Apply ``body`` to its own results ``count`` times; inference only."""
    values = [tensor.clone() for tensor in _checked_list(inputs)]  # the body may change them in place
    trace = current_trace()
    if trace is not None and trace.training:
        raise Error("poptorch.for_loop() is only supported in inference.")
    for _ in range(count if trace is not None else 1):
        results = body(*values)
        values = list(results) if isinstance(results, list | tuple) else [results]
    return values


def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Any],
    then_inps: Sequence[torch.Tensor],
    else_body: Callable[..., Any],
    else_inps: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return the results of one of two functions; inference only."""
    trace = current_trace()
    if trace is None:
        results = then_body(*then_inps) if bool(condition) else else_body(*else_inps)
        return list(results) if isinstance(results, list | tuple) else [results]
    if trace.training:
        raise Error("poptorch.cond() is only supported in inference.")
    both = []
    for body, arguments in ((then_body, then_inps), (else_body, else_inps)):
        results = body(*(tensor.clone() for tensor in arguments))
        both.append(list(results) if isinstance(results, list | tuple) else [results])
    return [torch.where(condition.bool().reshape(()), a, b) for a, b in zip(*both, strict=True)]


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int = 1) -> torch.Tensor:
    """Return ``size`` elements along ``dim``, from the computed index ``start`` on; indices wrap around the end."""
    places = start.reshape(()) + torch.arange(0, size, step)
    return tensor.index_select(dim, places % tensor.shape[dim])


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """Return ``input`` with ``src`` in place of ``size`` elements along ``dim`` from ``start`` on, as there."""
    places = start.reshape(()) + torch.arange(size)
    return input.index_copy(dim, places % input.shape[dim], src)


def ctc_beam_search_decoder(
    log_probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (log probabilities [N, top], lengths [N, top], paths [N, top, T]) of the likeliest label sequences."""
    steps, batch = log_probs.shape[:2]
    arguments = {"log_probs": log_probs, "lengths": lengths, "blank": blank, "beam": beam_width, "top": top_paths}
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = intercepted(
        "ctc_beam_search",
        arguments,
        lambda: (
            torch.zeros(batch, top_paths),
            torch.zeros(batch, top_paths, dtype=torch.int32),
            torch.zeros(batch, top_paths, steps, dtype=torch.int32),
        ),
    )
    return results


def custom_op(
    inputs: Any, name: str, domain: str, domain_version: int, example_outputs: Any, attributes: Any = None
) -> Any:
    """Raise an error: ops in C++ cannot be loaded."""
    raise refusal(
        f"The custom op '{domain}.{name}' is code in C++ for Poplar, which the emulator cannot load; write it with "
        "PyTorch's functions instead"
    )


class CPU:
    """A function that runs on the host within a graph; not supported while a model is traced."""

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        self._call, self._id = layer_to_call, ID

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, unless forward is being traced."""
        if current_trace() is not None:
            raise Error(f"poptorch.CPU('{self._id}') is not supported; compute it before or after the model")
        return self._call(*args, **kwargs)


class MultiConv:
    """A context whose convolutions are planned together, which does not affect results."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def _set(self, name: str, value: Any) -> MultiConv:
        say_without_effect("The setting of MultiConv", [name])
        self._options[name] = value
        return self

    def availableMemoryProportions(self, value: Any) -> MultiConv:
        """Accept the memory of the convolutions."""
        return self._set("availableMemoryProportions", value)

    def partialsTypes(self, value: Any) -> MultiConv:
        """Accept the types of partial sums."""
        return self._set("partialsTypes", value)

    def enableConvDithering(self, value: Any) -> MultiConv:
        """Accept dithering of the start tiles of convolutions, without effect."""
        return self._set("enableConvDithering", value)

    def planType(self, value: MultiConvPlanType) -> MultiConv:
        """Accept how the convolutions are planned."""
        if not isinstance(value, MultiConvPlanType):
            raise AssertionError("Invalid plan type for MultiConv")
        return self._set("planType", value)

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """Accept the tiles of each convolution."""
        return self._set("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> MultiConv:
        """Accept the additional cycles that a plan may take."""
        return self._set("cycleBackOff", value)

    def __enter__(self) -> MultiConv:
        trace = current_trace()
        if trace is not None:
            if trace.multi_conv:
                raise Error("Nested poptorch.MultiConv is not supported.")
            trace.multi_conv = True
            self._before = trace.convolutions()
        return self

    def __exit__(self, *error: object) -> None:
        trace = current_trace()
        if trace is not None:
            trace.multi_conv = False
            if error[0] is None and trace.convolutions() == self._before:
                raise Error("Unexpected end_multi_conv.")


class NameScope:
    """A context that names the ops in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> NameScope:
        push_name_scope(self._name)
        return self

    def __exit__(self, *error: object) -> None:
        pop_name_scope()


def push_name_scope(name: str) -> None:
    """Name the ops from here on, in the scope that was the last."""
    trace = current_trace()
    if trace is not None:
        trace.outer_scopes.append(trace.writer.scope)
        trace.writer.scope = f"{trace.writer.scope}/{name}".lstrip("/")


def pop_name_scope() -> None:
    """End the scope that ``push_name_scope`` began last."""
    trace = current_trace()
    if trace is None:
        return
    if not trace.outer_scopes:
        raise refusal("pop_name_scope ends a scope that no push_name_scope began; call push_name_scope before it")
    trace.writer.scope = trace.outer_scopes.pop()


class Attribute:
    """A context that sets attributes of ops, which do not affect results."""

    def __init__(self, **attributes: Any) -> None:
        say_without_effect("The attribute of ops", attributes)

    def __enter__(self) -> Attribute:
        return self

    def __exit__(self, *error: object) -> None:
        return None
