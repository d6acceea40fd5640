"""Skipped products: matrix products and convolutions of which a trace computes only the shapes on the host."""

from __future__ import annotations

from typing import Any

import torch

#: The ATen ops that take most of the time of a forward pass, with the position of the first factor; the second
#: one follows it.
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "convolution": 0}


def zeros_of_product(name: str, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Return zeros with the shape and type of the result of one of ``PRODUCTS``; raise the same errors as PyTorch."""
    first, second = args[PRODUCTS[name] : PRODUCTS[name] + 2]
    if name == "convolution":
        product = func(*map(_abstract, args), **kwargs)
        return torch.zeros(product.shape, dtype=product.dtype)
    shape = (*first.shape[:-1], second.shape[-1])
    if not _match(first, second) or not all(_spreads(tensor, shape) for tensor in args[: PRODUCTS[name]]):
        return func(*args, **kwargs)
    return torch.zeros(shape, dtype=first.dtype)


def _abstract(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device="meta")


def _match(first: torch.Tensor, second: torch.Tensor) -> bool:
    same = first.dtype == second.dtype and first.dim() == second.dim() and first.shape[:-2] == second.shape[:-2]
    return bool(same and first.shape[-1] == second.shape[-2])


def _spreads(added: torch.Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(reversed(added.shape), reversed(shape), strict=False)
    return added.dim() <= len(shape) and all(size in (1, full) for size, full in sizes)
