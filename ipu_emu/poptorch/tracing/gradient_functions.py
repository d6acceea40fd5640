"""Gradient functions of the program: its own backward passes and hooks, which do not run on the device.

The device's gradients are those of the recorded ops. A program that changes gradients by other means is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.tracing.recorder import OpRecorder

__all__ = ["check_hooks", "functions_replaced"]


def check_hooks(module: torch.nn.Module) -> None:
    """Raise poptorch.Error for hooks of gradients on parameters and modules."""
    hooked = [
        f"the parameter {name}"
        for name, one in module.named_parameters()
        if one.requires_grad and (one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None))
    ]
    hooked += [
        f"the module {name or 'itself'}"
        for name, one in module.named_modules()
        if one._backward_hooks or one._backward_pre_hooks
    ]
    if hooked:
        raise Error(
            f"Hooks on gradients, of {', '.join(hooked)}, do not run on the device: remove them, and freeze weights "
            "with requires_grad_(False) or clip with the optimizer's max_grad_norm"
        )


@contextmanager
def functions_replaced(recorder: OpRecorder) -> Iterator[None]:
    """Context manager in which a torch.autograd.Function with a gradient is refused.

    Checkpoints of PyTorch, which only compute again, are calls of their function.
    """
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is CheckpointFunction:
            function, _, *inputs = args
            return function(*inputs)
        tensors = [one for one in [*args, *kwargs.values()] if isinstance(one, torch.Tensor)]
        if any(recorder.carries(one) for one in tensors):
            raise Error(
                f"{cls.__name__}.apply in {recorder.where()}: the backward function of a torch.autograd.Function "
                "does not run on the device; write forward with PyTorch's ops, and detach() what has no gradient"
            )
        return original.__func__(cls, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original
