"""Reserved prefixes: ids of the tensors that transforms add for a tensor of the user (PopART 3.4, section 2.1)."""

__all__ = [
    "ACCL",
    "ACCL1",
    "ACCL2",
    "ACCL3",
    "ACCUM",
    "COUNTER",
    "GRADIENT",
    "RANDOM_SEED",
    "RESTORED",
    "STASHED",
    "STEP",
    "UPDATED",
]

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
