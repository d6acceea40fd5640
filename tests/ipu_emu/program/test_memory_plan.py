"""Memory plans: properties of the layout of lifetimes, and the table of a real model."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_emu import models, popart
from ipu_emu.program.memory_layout import MemoryBlock, lay_out
from ipu_emu.program.memory_plan import TRANSIENT, Lifetime, overlap_of
from tests.ipu_emu.helpers.sessions import device, options

SPANS = st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 8))


def lives(blocks: list[MemoryBlock]) -> list[Lifetime]:
    return [Lifetime(b.name, b.offset, b.size, b.first, b.last) for b in blocks if b.size]


@settings(max_examples=100, deadline=None)
@given(st.lists(SPANS, max_size=40))
def test_tensors_live_at_the_same_time_share_no_byte(spans: list[tuple[int, int, int]]) -> None:
    blocks = [
        MemoryBlock(str(number), None, size * 64, first, first + length)
        for number, (size, first, length) in enumerate(spans)
    ]
    end = lay_out(blocks)
    for block, other in combinations(blocks, 2):
        times = set(range(block.first, block.last + 1)) & set(range(other.first, other.last + 1))
        places = range(max(block.offset, other.offset), min(block.offset + block.size, other.offset + other.size))
        assert not times or not places, (block, other)
    assert overlap_of(lives(blocks)) is None
    together = [sum(b.size for b in blocks if b.first <= t <= b.last) for t in range(40)]
    assert max(together) <= end <= sum(b.size for b in blocks)


def test_a_clash_is_found() -> None:
    first, second = Lifetime("a", 0, 100, 0, 5), Lifetime("b", 64, 10, 5, 9)
    assert overlap_of([second, first]) == (first, second)
    assert overlap_of([Lifetime("a", 0, 100, 0, 4), second]) is None
    assert overlap_of([Lifetime("a", 0, 64, 0, 5), second]) is None


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130, 300])
@pytest.mark.parametrize("clashing", [False, True])
def test_a_clash_is_found_among_many_lifetimes(count: int, clashing: bool) -> None:
    random = np.random.default_rng(count)
    rows = random.integers(0, [count**2, 12, 20, 6], (count, 4))
    lifetimes = [
        Lifetime(str(number), int(offset), 1 + int(length), int(first), int(first + lives), f"transient:{number % 5}")
        for number, (offset, length, first, lives) in enumerate(rows)
    ]
    if clashing:
        lifetimes.insert(int(random.integers(count)), replace(lifetimes[int(random.integers(count))], name="another"))
    want = {frozenset((life.name, other.name)) for life, other in combinations(lifetimes, 2) if clash(life, other)}
    assert want or not clashing
    both = overlap_of(lifetimes)
    assert (frozenset(life.name for life in both) in want) if both else not want


def clash(life: Lifetime, other: Lifetime) -> bool:
    """Whether two lifetimes use the same byte at the same time."""
    times = range(max(life.first, other.first), min(life.last, other.last) + 1)
    places = range(max(life.offset, other.offset), min(life.offset + life.size, other.offset + other.size))
    return life.region == other.region and len(times) > 0 and len(places) > 0


def test_the_table_of_a_model_lists_all_that_is_not_always_live() -> None:
    model = models.resnet8(batch=16, dtype=np.float16)
    session = popart.TrainingSession(
        model.proto, popart.DataFlow(1, [model.loss]), model.loss, popart.ConstSGD(0.1), device(options())
    )
    session.prepareDevice(loadEngine=False)
    plan = session.executable.plan
    assert overlap_of(plan.lives) is None
    assert max(life.offset + life.size for life in plan.lives) == plan.sizes[TRANSIENT]
    listed = {line.split()[4] for line in plan.table().splitlines()[1:]}
    assert {"data", "labels", "Conv:0", "scratch"} <= listed
    assert "always live" in str(plan)
    places = {line.split()[-1]: line.split() for line in str(plan).partition("\n\n")[2].splitlines()[1:]}
    weights = model.graph.data
    assert {id: places[id][2] for id in weights} == {id: f"{plan.placements[id].offset:,}" for id in weights}
    assert plan.sizes[TRANSIENT] < 0.5 * sum(life.size for life in plan.lives)


def by_definition(blocks: list[MemoryBlock]) -> list[int]:
    """The offsets by definition: the largest block first, each at 0 or at the end of another block."""
    placed: dict[str, tuple[MemoryBlock, int]] = {}
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        alive = [(at, at + o.size) for o, at in placed.values() if o.first <= block.last and block.first <= o.last]
        tries = sorted({0, *(end for _, end in alive)})
        offset = next(t for t in tries if all(t + block.size <= low or high <= t for low, high in alive))
        placed[block.name] = block, offset
    return [placed[block.name][1] for block in blocks]


@pytest.mark.parametrize("seed", range(5))
def test_each_block_is_at_the_lowest_free_offset(seed: int) -> None:
    random = np.random.default_rng(seed)
    first = random.integers(0, 60, 120)
    last = first + random.integers(0, 20, 120)
    sizes = 64 * random.integers(1, 9, 120)
    numbers = zip(sizes.tolist(), first.tolist(), last.tolist(), strict=True)
    blocks = [MemoryBlock(f"t{number}", None, *three) for number, three in enumerate(numbers)]
    wanted = by_definition(blocks)
    assert lay_out(blocks) == max(at + block.size for at, block in zip(wanted, blocks, strict=True))
    assert [block.offset for block in blocks] == wanted
