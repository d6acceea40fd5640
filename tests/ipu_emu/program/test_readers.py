"""Readers of a program: each has a row for every instruction that it can meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ipu_emu.compiler.lowering.pipelining import STAGES
from ipu_emu.compiler.memory.planner import STASH_USERS
from ipu_emu.engine.calls.instruction_calls import CALLS
from ipu_emu.engine.engine import PARTS
from ipu_emu.errors import InternalError
from ipu_emu.program.clock.pricing import PRICES
from ipu_emu.program.clock.timeline import SEGMENTS
from ipu_emu.program.instructions import INSTRUCTIONS, Instruction, Leaf, row

LEAVES = [kind for kind in INSTRUCTIONS if issubclass(kind, Leaf)]

#: Every reader of programs, and the instructions that it can meet.
READERS: dict[str, tuple[Mapping[type[Instruction], Any], list[type[Instruction]]]] = {
    "compiler.lowering.pipelining": (STAGES, [*LEAVES]),
    "compiler.memory.planner": (STASH_USERS, [*LEAVES]),
    "engine.calls": (CALLS, [*LEAVES]),
    "engine.parts": (PARTS, [*INSTRUCTIONS]),
    "clock.pricing": (PRICES, [*LEAVES]),
    "clock.timeline": (SEGMENTS, [*INSTRUCTIONS]),
}


def test_every_class_of_instructions_is_listed() -> None:
    """Except base classes, which no program has."""
    kinds = {kind for kind in derived(Instruction) if kind.__module__.startswith("ipu_emu.")}
    bases = {base for kind in kinds for base in kind.__mro__[1:]}
    assert kinds - bases == {*INSTRUCTIONS}


def derived(base: type[Instruction]) -> Iterator[type[Instruction]]:
    for kind in base.__subclasses__():
        yield kind
        yield from derived(kind)


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_has_a_row_for_every_instruction(reader: str) -> None:
    table, met = READERS[reader]
    for kind in met:
        assert row(table, kind) is not None


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_has_no_row_that_is_never_used(reader: str) -> None:
    table, met = READERS[reader]
    used = {next(base for base in kind.__mro__ if base in table) for kind in met}
    assert used == {*table}


def test_an_instruction_without_a_row_is_refused() -> None:
    class Unknown(Leaf):
        pass

    for table in (STAGES, CALLS, PRICES):
        with pytest.raises(InternalError, match="Unknown"):
            row(table, Unknown)
