"""Memory remedies: which changes are offered, alone and combined, for requests whose need is a formula."""

from __future__ import annotations

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.session.footprint import MemoryNeed
from ipu_emu.session.memory_remedies import Change, Remedies, RemedyKind, find_remedies

LIMIT = 100


def change(kind: RemedyKind, name: str) -> Change[frozenset[str]]:
    return Change(kind, name, lambda request: request | {name})


def searched(now: int, savings: dict[str, int], refused: frozenset[str] = frozenset()) -> tuple[Remedies, list[str]]:
    """Search with the bytes that each change saves; a name is a kind, with a level after a colon."""
    tried: list[str] = []

    def need(request: frozenset[str]) -> MemoryNeed:
        if request & refused:
            raise EmulatorError("cannot be compiled")
        return MemoryNeed(0, now - sum(savings[name] for name in request), LIMIT)

    changes = [change(RemedyKind[name.split(":")[0]], name) for name in savings]
    remedies = find_remedies(frozenset(), changes, need, now=MemoryNeed(0, now, LIMIT), progress=tried.append)
    return remedies, tried


def advice(remedies: Remedies) -> list[tuple[str, ...]]:
    return [remedy.advice for remedy in remedies.sufficient]


def test_the_cheapest_that_suffice_are_first_and_nothing_else_is_compiled() -> None:
    savings = {"WEIGHTS_OFF_CHIP": 60, "RECOMPUTE": 60, "STATES_SHARDED": 60, "FLOAT16": 5, "MICRO_BATCH": 60}
    remedies, tried = searched(150, savings)
    assert advice(remedies) == [("STATES_SHARDED",), ("MICRO_BATCH",), ("RECOMPUTE",)]
    assert "WEIGHTS_OFF_CHIP" not in tried
    assert str(remedies).splitlines()[1] == "  STATES_SHARDED: 90 B of 100 B on IPU 0, the fullest"


def test_of_one_kind_the_mildest_that_suffices_is_offered() -> None:
    remedies, tried = searched(150, {"MORE_IPUS:2": 30, "MORE_IPUS:4": 50, "MORE_IPUS:8": 60})
    assert advice(remedies) == [("MORE_IPUS:4",)]
    assert "MORE_IPUS:8" not in tried


def test_if_no_remedy_suffices_alone_only_sufficient_combinations_are_offered() -> None:
    savings = {"STATES_OFF_CHIP": 30, "RECOMPUTE": 15, "ACTIVATIONS_OFF_CHIP": 40}
    assert advice(searched(150, savings)[0]) == [("STATES_OFF_CHIP", "ACTIVATIONS_OFF_CHIP")]
    assert advice(searched(180, savings)[0]) == [("STATES_OFF_CHIP", "RECOMPUTE", "ACTIVATIONS_OFF_CHIP")]


def test_a_combination_is_offered_with_more_ipus_and_without() -> None:
    savings = {"STATES_OFF_CHIP": 30, "RECOMPUTE": 25, "MORE_IPUS:2": 30, "MORE_IPUS:4": 45}
    remedies, _ = searched(150, savings)
    assert advice(remedies) == [("STATES_OFF_CHIP", "RECOMPUTE"), ("STATES_OFF_CHIP", "MORE_IPUS:2")]


def test_changes_that_fail_or_save_nothing_are_not_offered() -> None:
    remedies, _ = searched(
        150, {"STATES_OFF_CHIP": 99, "RECOMPUTE": 0, "FLOAT16": 60}, frozenset({"STATES_OFF_CHIP"})
    )
    assert advice(remedies) == [("FLOAT16",)]
    assert str(searched(150, {"RECOMPUTE": 0})[0]) == "No known remedy saves memory"


def test_if_no_change_suffices_the_best_one_is_reported() -> None:
    remedies, _ = searched(200, {"RECOMPUTE": 15, "FLOAT16": 20})
    assert remedies.sufficient == ()
    assert str(remedies) == (
        "No known remedy suffices. The one that saves the most is\n"
        "  FLOAT16 and RECOMPUTE: 165 B of 100 B on IPU 0, the fullest"
    )


@pytest.mark.parametrize(("streaming", "fits"), [(0, True), (1, False)])
def test_streaming_memory_must_suffice_too(streaming: int, fits: bool) -> None:
    assert MemoryNeed(0, 50, LIMIT, streaming).fits is fits
