"""Anchor rules: every anchor must be a tensor of the step, of the model or of its backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.program.anchors import Anchor

__all__ = ["check_anchors"]


def check_anchors(graph: Graph, anchors: Sequence[Anchor]) -> None:
    """Raise EmulatorError for an anchor that is not a tensor of ``graph``, the step before pruning."""
    for anchor in anchors:
        if anchor.tensor not in graph.tensors:
            raise EmulatorError(f"Anchor tensor `{anchor.tensor}' not in Ir Tensors. {_hint(graph, anchor.tensor)}")


def _hint(graph: Graph, id: str) -> str:
    """The hint for an unknown anchor: that its base is a tensor, or the list of tensors."""
    base = id.partition("___")[2]
    if base in graph.tensors:
        return (
            f"\nInterestingly, `{base}' IS in tensors. \nNote that not all tensors have gradients: there must be a "
            "chain of ops with gradients from the tensor to the loss"
        )
    return "The tensors are:\n" + "\n".join(graph.tensors)
