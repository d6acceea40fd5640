"""Prefix functions: the reserved prefixes of tensor ids, each as a function."""

from ipu_emu.compiler.rewriting import reserved_prefixes as prefixes

__all__ = [
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclPrefix",
    "reservedAccumPrefix",
    "reservedCounterPrefix",
    "reservedGradientPrefix",
    "reservedRandomSeedPrefix",
    "reservedRestoredPrefix",
    "reservedStashedPrefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
]


def reservedGradientPrefix() -> str:
    """Prefix of the id of a gradient."""
    return prefixes.GRADIENT


def reservedAccumPrefix() -> str:
    """Prefix of the id of an accumulated gradient."""
    return prefixes.ACCUM


def reservedAcclPrefix() -> str:
    """Prefix of the id of a momentum."""
    return prefixes.ACCL


def reservedAccl1Prefix() -> str:
    """Prefix of the id of an optimiser's first moment."""
    return prefixes.ACCL1


def reservedAccl2Prefix() -> str:
    """Prefix of the id of an optimiser's second moment."""
    return prefixes.ACCL2


def reservedAccl3Prefix() -> str:
    """Prefix of the id of an optimiser's third state."""
    return prefixes.ACCL3


def reservedStepPrefix() -> str:
    """Prefix of the id of an optimiser's step counter."""
    return prefixes.STEP


def reservedCounterPrefix() -> str:
    """Prefix of the id of a counter of micro-batches."""
    return prefixes.COUNTER


def reservedRestoredPrefix() -> str:
    """Prefix of the id of an activation taken from a stash."""
    return prefixes.RESTORED


def reservedStashedPrefix() -> str:
    """Prefix of the id of a stash."""
    return prefixes.STASHED


def reservedUpdatedVarPrefix() -> str:
    """Prefix of the id of an updated weight."""
    return prefixes.UPDATED


def reservedRandomSeedPrefix() -> str:
    """Prefix of the id of the random seed."""
    return prefixes.RANDOM_SEED
