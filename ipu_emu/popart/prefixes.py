"""Reserved prefixes of tensor ids, as functions."""

from ipu_emu.transforms import ids

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

_STATES = (ids.ACCL, ids.ACCL1, ids.ACCL2, ids.ACCL3, ids.ACCUM, ids.STEP)


def reservedGradientPrefix() -> str:
    return ids.GRADIENT


def reservedAccumPrefix() -> str:
    return ids.ACCUM


def reservedAcclPrefix() -> str:
    return ids.ACCL


def reservedAccl1Prefix() -> str:
    return ids.ACCL1


def reservedAccl2Prefix() -> str:
    return ids.ACCL2


def reservedAccl3Prefix() -> str:
    return ids.ACCL3


def reservedStepPrefix() -> str:
    return ids.STEP


def reservedCounterPrefix() -> str:
    return ids.COUNTER


def reservedRestoredPrefix() -> str:
    return ids.RESTORED


def reservedStashedPrefix() -> str:
    return ids.STASHED


def reservedUpdatedVarPrefix() -> str:
    return ids.UPDATED


def reservedRandomSeedPrefix() -> str:
    return ids.RANDOM_SEED


def without_prefix(id: str) -> str:
    """The weight that an optimiser state belongs to."""
    return next((id.removeprefix(prefix) for prefix in _STATES if id.startswith(prefix)), id)
