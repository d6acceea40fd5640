"""The table of all ops: one file per family."""

from __future__ import annotations

from ipu_emu.ops import (
    activations,
    adam,
    adaptive,
    arithmetic,
    clipping,
    collectives,
    comparison,
    constants,
    convolution,
    dropout,
    elementwise,
    functions,
    fused,
    indexing,
    linear,
    loss_scaling,
    losses,
    movement,
    normalization,
    ordering,
    pooling,
    random,
    reduction,
    softmax,
    transposed,
    update,
    views,
)
from ipu_emu.ops.registry import Registry

__all__ = ["TABLE"]

TABLE = Registry(
    family.OPS
    for family in (
        activations,
        adam,
        adaptive,
        arithmetic,
        clipping,
        collectives,
        comparison,
        constants,
        convolution,
        dropout,
        elementwise,
        functions,
        fused,
        indexing,
        linear,
        loss_scaling,
        losses,
        movement,
        normalization,
        ordering,
        pooling,
        random,
        reduction,
        softmax,
        transposed,
        update,
        views,
    )
)
