"""Sync groups, as the user guide draws them."""

from __future__ import annotations

from ipu_emu.hardware import (
    PATTERNS,
    groups,
)


def test_sync_groups() -> None:
    def drawn(name: str, ipus: int, width: int) -> tuple[object, object]:
        pattern = PATTERNS[name]
        return groups(pattern.gs1, range(ipus), width), groups(pattern.gs2, range(ipus), width)

    assert drawn("Full", 4, 2) == (((0, 1), (2, 3)), ((0, 1, 2, 3),))
    assert drawn("SinglePipeline", 4, 4) == (((0,), (1,), (2,), (3,)), ((0, 1, 2, 3),))
    assert drawn("ReplicaAndLadder", 4, 4) == (((0, 1, 2, 3),), ((0, 2), (1, 3)))
