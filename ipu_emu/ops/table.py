"""The table of all ops: one file per family."""

from __future__ import annotations

from ipu_emu.ops import (
    adam,
    adaptive,
    clipping,
    collectives,
    constants,
    convolution,
    elementwise,
    fused,
    linear,
    losses,
    movement,
    normalization,
    pooling,
    reduction,
    softmax,
    update,
)
from ipu_emu.ops.registry import Registry

__all__ = ["TABLE"]

TABLE = Registry(
    family.OPS
    for family in (
        elementwise,
        fused,
        movement,
        normalization,
        reduction,
        linear,
        convolution,
        pooling,
        softmax,
        losses,
        update,
        adam,
        adaptive,
        clipping,
        constants,
        collectives,
    )
)
