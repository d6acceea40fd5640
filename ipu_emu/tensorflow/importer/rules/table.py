"""Table: the rule of every op type."""

from __future__ import annotations

from ipu_emu.tensorflow.importer.node import Rule
from ipu_emu.tensorflow.importer.rules import (
    arithmetic,
    control,
    indexing,
    matrices,
    padding,
    pooling_and_norms,
    products,
    random,
    reductions,
    resizing,
    shapes,
    slicing,
    updates,
    volumes,
)

RULES: dict[str, Rule] = {
    type: rule
    for family in (
        (arithmetic, control, indexing, matrices, padding, pooling_and_norms, products),
        (random, reductions, resizing, shapes, slicing, updates, volumes),
    )
    for module in family
    for type, rule in module.RULES.items()
}
