"""Table: the rule of every ATen op that has one, by its name without overload and trailing underscore."""

from __future__ import annotations

from ipu_emu.poptorch.aten import (
    activations,
    elementwise,
    indexing,
    losses,
    own_ops,
    pools_and_norms,
    products,
    random,
    recurrent,
    reductions,
    shapes,
)
from ipu_emu.poptorch.aten.call import Rule

_FAMILIES = (
    *(activations, elementwise, indexing, losses, own_ops),
    *(pools_and_norms, products, random, recurrent, reductions, shapes),
)

RULES: dict[str, Rule] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}
