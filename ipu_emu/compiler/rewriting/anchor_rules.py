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
            raise EmulatorError(
                f"Anchor tensor '{anchor.tensor}' not in tensors. Anchor a tensor of the model, or a gradient of one"
            )
