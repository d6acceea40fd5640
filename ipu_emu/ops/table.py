"""The table of all ops: one file per family."""

from __future__ import annotations

from ipu_emu.ops import (
    activations,
    adam,
    adaptive,
    arithmetic,
    class_losses,
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
    layer_norm,
    linear,
    loss_scaling,
    losses,
    movement,
    normalization,
    ordering,
    pooling,
    random,
    random_tensors,
    recurrent,
    reduction,
    softmax,
    subgraphs,
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
        class_losses,
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
        layer_norm,
        linear,
        loss_scaling,
        losses,
        movement,
        normalization,
        ordering,
        pooling,
        random,
        random_tensors,
        recurrent,
        reduction,
        softmax,
        subgraphs,
        transposed,
        update,
        views,
    )
)
