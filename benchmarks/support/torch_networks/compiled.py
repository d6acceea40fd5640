"""Networks compiled by PyTorch, one after the other in one process."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["compiled_anew"]


def compiled_anew(net: torch.nn.Module) -> Any:
    """Compile ``net`` for the sizes of its own inputs.

    Dynamo would take sizes for variable if an earlier network of the same code had others, which makes compiled
    code slower, and after eight networks it would no longer compile that code at all.
    """
    torch._dynamo.reset()
    return torch.compile(net, dynamic=False)
