"""Sync patterns as texts, in which letter case does not count."""

from __future__ import annotations

from ipu_emu.errors import EmulatorError
from ipu_emu.popart.types.enums import SyncPattern

__all__ = ["syncPatternFromString", "syncPatternToString", "sync_pattern"]

_TEXTS = {
    SyncPattern.Full: "full",
    SyncPattern.SinglePipeline: "singlePipeline",
    SyncPattern.ReplicaAndLadder: "replicaAndLadder",
}


def syncPatternFromString(pattern: str) -> SyncPattern:
    """The sync pattern of that name in any letter case; raise EmulatorError for an unknown one."""
    for member, text in _TEXTS.items():
        if text.lower() == str(pattern).lower():
            return member
    raise EmulatorError(f"Unknown sync pattern '{pattern}'; use one of {', '.join(_TEXTS.values())}")


def syncPatternToString(pattern: SyncPattern) -> str:
    """The name of a sync pattern: full, singlePipeline or replicaAndLadder."""
    return _TEXTS[pattern]


def sync_pattern(value: SyncPattern | str) -> SyncPattern:
    """The pattern that is meant."""
    return value if isinstance(value, SyncPattern) else syncPatternFromString(value)
