"""Events of a pipeline: in every allowed order, each event reads the same values as in the sequential order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ipu_emu import popart
from ipu_emu.engine.pipeline.bound_pipeline import BoundPipeline
from ipu_emu.engine.pipeline.host_sync import sync_partners
from ipu_emu.engine.pipeline.pipeline_events import HOST
from ipu_emu.engine.threads.dependency_threads import dependencies
from ipu_emu.hardware import PATTERNS
from ipu_emu.popart import SyncPattern
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import options


def bound(kind: str, stages: int, pattern: SyncPattern) -> BoundPipeline:
    tower = Tower(stages)
    device = popart.DeviceManager().acquireAvailableDevice(stages, pattern=pattern)
    opts = options(A=2 * stages, **PIPELINE, pipelineSchedule=kind)
    session = popart.TrainingSession(
        tower.builder.getModelProto(), popart.DataFlow(1, [tower.loss]), tower.loss, popart.ConstSGD(0.1), device,
        userOptions=opts,
    )  # fmt: skip
    session.prepareDevice()
    (pipeline,) = [
        part for loop in session.engine.parts for part in loop.body.parts if isinstance(part, BoundPipeline)
    ]
    session.close()
    return pipeline


def read_from(pipeline: BoundPipeline, order: list[int]) -> dict[int, dict[Any, Any]]:
    """For each event and each buffer that it reads or writes, the event that wrote it last."""
    memory: dict[Any, int] = {}
    writers: dict[int, dict[Any, Any]] = {}
    for number in order:
        event = pipeline.order[number]
        used = list(pipeline.stages[event.stage].piece(event).access.spots(event.micro_batch))
        writers[number] = {spot: memory.get(spot) for spot, _ in used}
        memory |= {spot: number for spot, writes in used if writes}
    return writers


def shuffled(pipeline: BoundPipeline, needed: list[set[int]], chance: random.Random) -> list[int]:
    """A random order that keeps dependencies, and the order of the events of each actor."""
    queues: dict[int, list[int]] = {}
    for number, event in enumerate(pipeline.order):
        queues.setdefault(event.actor, []).append(number)
    done: list[int] = []
    finished: set[int] = set()
    while any(queues.values()):
        ready = [actor for actor, queue in queues.items() if queue and needed[queue[0]] <= finished]
        done.append(queues[chance.choice(ready)].pop(0))
        finished.add(done[-1])
    return done


@pytest.mark.parametrize("pattern", list(SyncPattern), ids=lambda pattern: pattern.name)
@pytest.mark.parametrize(
    ("kind", "stages"), [("popart", 2), ("popart", 4), ("grouped", 4), ("interleaved", 4), ("sequential", 2)]
)
def test_every_order_that_keeps_the_dependencies_reads_the_same(kind: str, stages: int, pattern: SyncPattern) -> None:
    pipeline, chance = bound(kind, stages, pattern), random.Random(0)
    want = read_from(pipeline, list(range(len(pipeline.order))))
    waiting = sync_partners(stages, PATTERNS[pattern.name])
    for _ in range(20):
        order = shuffled(pipeline, pipeline.needs, chance)
        assert read_from(pipeline, order) == want
        assert_partners_wait(pipeline, order, waiting)


def assert_partners_wait(pipeline: BoundPipeline, order: list[int], waiting: dict[int, set[int]]) -> None:
    """The event of the host is between the same two events of every IPU that waits for it."""
    at = {number: index for index, number in enumerate(order)}
    for host, event in enumerate(pipeline.order):
        for number, other in enumerate(pipeline.order) if event.actor == HOST else ():
            if other.actor in waiting[pipeline.ipus[event.stage]]:
                assert (at[number] < at[host]) == (number < host)


def test_a_token_is_sent_and_awaited_once() -> None:
    """Threads 0 and 1; task 4 depends on a task for which thread 1 has waited already."""
    tokens = dependencies([0, 1, 0, 1, 1], [set(), {0}, {1}, {0, 2}, {0}])
    assert [(token.waits, token.signals) for token in tokens] == [
        ((), (1,)),
        ((0,), (0,)),
        ((1,), (1,)),
        ((0,), ()),
        ((), ()),
    ]
