"""Ranks that are threads: one control block, and segments that all ranks can address."""

import numpy as np

from gcl import connect
from gcl.transport.memory.inprocess import domains
from gcl.transport.memory.memory_domain import TEXT_BYTES


def test_every_domain_sees_the_same_control_block_and_arenas() -> None:
    first, second, third = domains(3, segment_bytes=1 << 20)
    assert [domain.rank for domain in (first, second, third)] == [0, 1, 2]
    assert first.arenas == second.arenas == third.arenas
    assert len(set(first.arenas)) == first.ranks == 3
    assert first.arenas[1] == second.segment.address
    assert np.shares_memory(first.control, third.control)


def test_memory_written_by_a_rank_is_read_by_the_others() -> None:
    first, second = domains(2, segment_bytes=1 << 20)
    first.write_text("all_reduce at train.py:3")
    second.write_text("barrier")
    assert (second.read_text(0), first.read_text(1)) == ("all_reduce at train.py:3", "barrier")
    first.write_text("short")
    assert second.read_text(0) == "short", "and nothing of what was there before"


def test_long_and_foreign_texts_are_cut_not_spilt() -> None:
    first, second = domains(2, segment_bytes=1 << 20)
    second.write_text("untouched")
    first.write_text("ü" * 5000)
    assert second.read_text(0).startswith("ü" * (TEXT_BYTES // 2 - 1))
    assert second.read_text(1) == "untouched"


def test_threads_live_as_long_as_their_process() -> None:
    (domain,) = domains(segment_bytes=1 << 20)
    assert domain.alive(0)
    assert domain.name == connect(segment_bytes=1 << 20).transport == "inprocess"
