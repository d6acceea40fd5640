"""Reserved prefixes: ids of the tensors that passes add for a tensor of the user (PopART 3.4, section 2.1)."""

from __future__ import annotations

GRADIENT = "Gradient___"
ACCUM = "Accum___"
ACCL = "Accl___"
ACCL1 = "Accl1___"
ACCL2 = "Accl2___"
ACCL3 = "Accl3___"
STEP = "Step___"
COUNTER = "Counter___"
RESTORED = "Restored___"
STASHED = "Stashed___"
UPDATED = "UpdatedVar___"
RANDOM_SEED = "randomSeed___"

_STATES = (ACCL, ACCL1, ACCL2, ACCL3, ACCUM, STEP)


def without_prefix(id: str) -> str:
    """Return the weight that an optimiser state or an accumulator belongs to."""
    return next((id.removeprefix(prefix) for prefix in _STATES if id.startswith(prefix)), id)
