"""Reserved prefixes of tensor ids, as functions."""

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
    "without_prefix",
]

_STATES = (
    prefixes.ACCL,
    prefixes.ACCL1,
    prefixes.ACCL2,
    prefixes.ACCL3,
    prefixes.ACCUM,
    prefixes.STEP,
)


def reservedGradientPrefix() -> str:
    return prefixes.GRADIENT


def reservedAccumPrefix() -> str:
    return prefixes.ACCUM


def reservedAcclPrefix() -> str:
    return prefixes.ACCL


def reservedAccl1Prefix() -> str:
    return prefixes.ACCL1


def reservedAccl2Prefix() -> str:
    return prefixes.ACCL2


def reservedAccl3Prefix() -> str:
    return prefixes.ACCL3


def reservedStepPrefix() -> str:
    return prefixes.STEP


def reservedCounterPrefix() -> str:
    return prefixes.COUNTER


def reservedRestoredPrefix() -> str:
    return prefixes.RESTORED


def reservedStashedPrefix() -> str:
    return prefixes.STASHED


def reservedUpdatedVarPrefix() -> str:
    return prefixes.UPDATED


def reservedRandomSeedPrefix() -> str:
    return prefixes.RANDOM_SEED


def without_prefix(id: str) -> str:
    """The weight that an optimiser state belongs to."""
    return next((id.removeprefix(prefix) for prefix in _STATES if id.startswith(prefix)), id)
