"""Schedules: slots, ramps, depths and totals compared with formulas; orders with DeepSpeed's, written out here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import (
    SCHEDULES,
    Slot,
    Task,
    TaskType,
    depth,
    fifo_depth,
    in_flight,
    schedule,
)

STAGES = range(1, 9)
COUNTS = range(1, 65)


def trace(slots: Iterator[Slot]) -> str:
    return " | ".join(
        " ".join(f"{task.stage}{'r' * (task.what is TaskType.RECOMPUTE)}" for task in slot) for slot in slots
    )


def cases(kind: str) -> Iterator[tuple[int, int, bool]]:
    """Every N, m, training that the schedule takes."""
    for stages, training in product(STAGES, (True, False)):
        unit = in_flight(kind, stages, training=training)
        for count in COUNTS:
            if (count >= unit) if kind == "popart" else count % unit == 0:
                yield stages, count, training


TRACES = [
    ("interleaved", 2, 2, True, "0 | 1 | 2 0 | 3 1 | 2 | 3"),
    ("grouped", 2, 4, True, "0 | 1 0 | 2 1 0 | 3 2 1 0 | 3 2 1 | 3 2 | 3"),
    ("interleaved", 3, 3, True, "0 | 1 | 2 0 | 3 1 | 4 2 0 | 5 3 1 | 4 2 | 5 3 | 4 | 5"),
    (
        "grouped", 3, 6, True,
        "0 | 1 0 | 2 1 0 | 3 2 1 0 | 4 3 2 1 0 | 5 4 3 2 1 0 | 5 4 3 2 1 | 5 4 3 2 | 5 4 3 | 5 4 | 5",
    ),
    ("grouped", 3, 3, False, "0 | 1 0 | 2 1 0 | 2 1 | 2"),
    ("interleaved", 3, 3, False, "0 | 1 0 | 2 1 0 | 2 1 | 2"),
    ("sequential", 2, 2, True, "0 | 1 | 2 | 3 | 0 | 1 | 2 | 3"),
    ("popart", 2, 3, True, "0 | 0 1 | 0 1 2 | 1 2 | 2"),
    ("popart", 3, 3, False, "0 | 0 1 | 0 1 2 | 1 2 | 2"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stages", "count", "training", "drawn"), TRACES)
def test_traces(kind: str, stages: int, count: int, training: bool, drawn: str) -> None:
    assert trace(schedule(kind, stages, count, training=training)) == drawn


#: Slot of scheduled stage k of micro-batch j, and how many slots there are; S scheduled stages.
SLOT_OF = {
    ("grouped", True): (lambda k, j, n, s: j + k, lambda m, n, s: m + 2 * n - 1),
    ("grouped", False): (lambda k, j, n, s: j + k, lambda m, n, s: m + n - 1),
    ("interleaved", True): (lambda k, j, n, s: 2 * j + k, lambda m, n, s: 2 * (m + n - 1)),
    ("interleaved", False): (lambda k, j, n, s: j + k, lambda m, n, s: m + n - 1),
    ("sequential", True): (lambda k, j, n, s: j * s + k, lambda m, n, s: m * s),
    ("sequential", False): (lambda k, j, n, s: j * s + k, lambda m, n, s: m * s),
    ("popart", True): (lambda k, j, n, s: j + k, lambda m, n, s: m + 2 * n - 2),
    ("popart", False): (lambda k, j, n, s: j + k, lambda m, n, s: m + n - 1),
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_slots_are_those_of_the_formulas(kind: str) -> None:
    for stages, count, training in cases(kind):
        merged = kind == "popart" and training
        scheduled = (2 * stages - merged) if training else stages
        slot_of, total = SLOT_OF[kind, training]
        slots = list(schedule(kind, stages, count, training=training))
        assert len(slots) == total(count, stages, scheduled)
        assert all(slots), "an empty slot"
        for number, slot in enumerate(slots):
            for task in slot:
                assert slot_of(task.stage, task.micro_batch, stages, scheduled) == number
                backward = task.stage >= stages
                assert task.ipu == (2 * stages - 1 - merged - task.stage if backward else task.stage)
                both = merged and task.stage == stages - 1
                assert task.what == ("forward+backward" if both else "backward" if backward else "forward")
        done = Counter((task.stage, task.micro_batch) for slot in slots for task in slot)
        assert done == Counter(product(range(scheduled), range(count)))


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_value_that_waits_has_room_in_its_fifo(kind: str) -> None:
    """The most micro-batches between a forward and its backward, counted in program order."""
    for stages, count, _ in (case for case in cases(kind) if case[2] and case[1] < 33):
        waiting, most = Counter[int](), Counter[int]()
        for task in (task for slot in schedule(kind, stages, count, training=True) for task in slot):
            if task.what is TaskType.FORWARD:
                waiting[task.ipu] += 1
                most[task.ipu] = max(most[task.ipu], waiting[task.ipu])
            elif task.what is TaskType.BACKWARD:
                waiting[task.ipu] -= 1
        for stage in range(stages):
            copies = depth(kind, stages, stage, True)
            assert copies == fifo_depth(kind, stages, stage, True) + 1
            together = kind == "popart" and stage == stages - 1
            assert most[stage] == (0 if together else min(copies, count))
    assert [fifo_depth("grouped", 4, stage, True) for stage in range(4)] == [6, 4, 2, 0]
    assert [fifo_depth("interleaved", 4, stage, True) for stage in range(4)] == [3, 2, 1, 0]
    assert [depth("sequential", 4, stage, True) for stage in range(4)] == [1, 1, 1, 1]
    assert [depth("popart", 4, stage, True) for stage in range(4)] == [7, 5, 3, 1]
    assert [depth(kind, 4, stage, False) for stage in range(4)] == [1, 1, 1, 1]


def deepspeed_train(micro_batches: int, stages: int, stage: int) -> list[tuple[str, int] | None]:
    """What a stage does in each step of DeepSpeed's TrainSchedule: stages alternate by the parity of the step."""
    steps: list[tuple[str, int] | None] = []
    for step in range(2 * (micro_batches + stages - 1)):
        if step % 2 == stage % 2:
            work, micro_batch = "forward", step // 2 - stage // 2
        elif step % 2 == 0:
            work, micro_batch = "backward", step // 2 - stages + (stage + 1) // 2
        else:
            work, micro_batch = "backward", step // 2 - stages + 1 + stage // 2
        steps.append((work, micro_batch) if 0 <= micro_batch < micro_batches else None)
    return steps


@pytest.mark.parametrize("stages", STAGES)
def test_interleaved_is_the_order_of_deepspeed(stages: int) -> None:
    for count in range(stages, 65, stages):
        slots = list(schedule("interleaved", stages, count, training=True))
        for stage in range(stages):
            ours = [next(((t.what, t.micro_batch) for t in slot if t.ipu == stage), None) for slot in slots]
            assert ours == deepspeed_train(count, stages, stage)


Row = list[int | None]


def ramped(stages: int, offsets: Sequence[int], count: int) -> list[list[Row]]:
    """A schedule as a Pod stores it, as rows of slots: a ramp-up, a main block for each round but one, a ramp-down.

    grouped, N = 1 in training         ramp-up   main   ramp-down
      row 0 (starts in slot 0)          0 1      0 1      . .
      row 1 (starts in slot 1)          . 0      1 0      1 .
    """
    slots = range(stages)
    full: list[Row] = [[(slot - offset) % stages for slot in slots] for offset in offsets]
    if len(offsets) == 1:
        return [full] * count
    up = [
        [stage if at >= offset else None for at, stage in enumerate(row)]
        for row, offset in zip(full, offsets, strict=True)
    ]
    down = [
        [stage if at < offset else None for at, stage in enumerate(row)]
        for row, offset in zip(full, offsets, strict=True)
    ]
    return [up, *[full] * (count // len(offsets) - 1), down]


@pytest.mark.parametrize("kind", ["grouped", "interleaved", "sequential"])
def test_blocks_unroll_to_the_slots(kind: str) -> None:
    """Except for the empty slots at the end of a ramp-down."""
    for stages, count, training in cases(kind):
        scheduled = 2 * stages if training else stages
        offsets = {"grouped": range(scheduled), "interleaved": range(0, scheduled, 1 + training), "sequential": [0]}
        columns = [
            column for block in ramped(scheduled, list(offsets[kind]), count) for column in zip(*block, strict=True)
        ]
        drawn = [sorted(stage for stage in column if stage is not None) for column in columns]
        slots = [sorted(task.stage for task in slot) for slot in schedule(kind, stages, count, training=training)]
        assert drawn == slots + [[]] * (len(drawn) - len(slots))
        if len(offsets[kind]) > 1:
            assert len(drawn) - len(slots) == scheduled - max(offsets[kind])


@pytest.mark.parametrize("kind", SCHEDULES)
def test_recomputation_is_just_before_each_backward_pass_except_the_last(kind: str) -> None:
    for stages, count, _ in (case for case in cases(kind) if case[2] and case[1] < 20):
        slots = list(schedule(kind, stages, count, training=True, recompute=True))
        plain = list(schedule(kind, stages, count, training=True))
        assert [tuple(t for t in slot if t.what is not TaskType.RECOMPUTE) for slot in slots] == plain
        when = {t: n for n, slot in enumerate(slots) for t in slot}
        again = {t for t in when if t.what is TaskType.RECOMPUTE}
        backward = {t for t in when if t.what is TaskType.BACKWARD and t.ipu < stages - 1}
        assert len(again) == len(backward)
        for task in backward:
            ahead = kind in ("grouped", "interleaved")
            assert when[Task(task.ipu, task.ipu, task.micro_batch, TaskType.RECOMPUTE)] == when[task] - ahead


def test_recomputation_sits_where_the_forward_runs() -> None:
    drawn = "0 | 1 0 | 2 1 0 0r | 3 2 1 0 0r | 3 2 1 0r | 3 2 0r | 3"
    assert trace(schedule("grouped", 2, 4, training=True, recompute=True)) == drawn
    drawn = "0 | 1 | 2 0 0r | 3 1 | 2 0r | 3"
    assert trace(schedule("interleaved", 2, 2, training=True, recompute=True)) == drawn
    assert trace(schedule("sequential", 2, 1, training=True, recompute=True)) == "0 | 1 | 2 | 0r 3"
    assert trace(schedule("popart", 2, 3, training=True, recompute=True)) == "0 | 0 1 | 0 1 0r 2 | 1 0r 2 | 0r 2"


def test_loads_and_stores_overlap_with_stages() -> None:
    drawn = [
        [f"{task.what[0]}{task.stage}.{task.micro_batch}" for task in slot]
        for slot in schedule("grouped", 2, 4, training=False, io_tiles=True)
    ]
    assert drawn == [
        ["l0.0"],
        ["l0.1", "f0.0"],
        ["l0.2", "f1.0", "f0.1"],
        ["s1.0", "l0.3", "f1.1", "f0.2"],
        ["s1.1", "f1.2", "f0.3"],
        ["s1.2", "f1.3"],
        ["s1.3"],
    ]
    for stages, count in ((2, 6), (2, 7), (3, 11), (4, 16)):
        slots = list(schedule("grouped", stages, count, training=True, io_tiles=True))
        assert len(slots) == count + 2 * stages - 1 + 2
        assert Counter(t.what for slot in slots for t in slot)[TaskType.STORE] == count
    with pytest.raises(EmulatorError, match="must be at least 6, but it is 5"):
        schedule("grouped", 2, 5, training=True, io_tiles=True)


def test_io_tiles_work_a_slot_before_and_after() -> None:
    for stages, training, count in product(STAGES, (True, False), COUNTS):
        scheduled = 2 * stages if training else stages
        if count < scheduled + 2:
            continue
        slots = list(schedule("grouped", stages, count, training=training, io_tiles=True))
        assert len(slots) == count + scheduled - 1 + 2
        at = {TaskType.LOAD: 0, TaskType.STORE: stages + 1}
        for number, slot in enumerate(slots):
            for task in slot:
                assert number == task.micro_batch + at.get(task.what, task.stage + 1)
        done = Counter((task.what, task.stage, task.micro_batch) for slot in slots for task in slot)
        assert set(done.values()) == {1}
        assert len(done) == count * (scheduled + 2)


def test_batch_serialisation_has_the_slots_of_the_sequential_schedule() -> None:
    for stages, training, count, iterations in product(STAGES, (True, False), (1, 2, 5), (2, 3, 8)):
        scheduled = 2 * stages if training else stages
        slots = list(schedule("sequential", stages, count, training=training, iterations=iterations))
        assert len(slots) == count * scheduled
        for number, slot in enumerate(slots):
            round, stage = divmod(number, scheduled)
            first = round * iterations
            assert [(t.stage, t.micro_batch) for t in slot] == [(stage, first + i) for i in range(iterations)]


def test_batch_serialisation_loops_within_a_stage() -> None:
    slots = list(schedule("sequential", 2, 2, training=True, iterations=3))
    assert [[(t.stage, t.micro_batch) for t in slot] for slot in slots] == [
        [(stage, first + part) for part in range(3)] for first in (0, 3) for stage in range(4)
    ]
    with pytest.raises(EmulatorError, match="need to be mapped to a single IPU"):
        schedule("sequential", 2, 2, training=True, iterations=3, mapping=[0, 1])


def test_mappings() -> None:
    slots = list(schedule("grouped", 3, 6, training=True, mapping=[0, [1, 2], 0]))
    assert [(t.ipu, t.stage) for t in slots[4]] == [(1, 4), (2, 4), (0, 3), (0, 2), (1, 1), (2, 1), (0, 0)]
    assert in_flight("interleaved", 3, training=False, mapping=[0, 1, 1]) == 1
    assert in_flight("interleaved", 4, training=False, mapping=[0, 0, 1, 1]) == 2
    assert trace(schedule("interleaved", 4, 2, training=False, mapping=[0, 0, 1, 1])) == "0 | 1 | 2 0 | 3 1 | 2 | 3"
    assert {t.ipu for slot in schedule("sequential", 2, 1, training=True, mapping=[-1, 0]) for t in slot} == {-1, 0}


WRONG = [
    (("grouped", 2, 6), {}, "The number of iterations of the pipeline must be a multiple of 4, but it is 6"),
    (("grouped", 2, 2), {}, "The number of iterations of the pipeline must be at least 4, but it is 2"),
    (("interleaved", 3, 4), {}, "The number of iterations of the pipeline must be a multiple of 3, but it is 4"),
    (("sequential", 3, 0), {}, "must be at least 1, but it is 0"),
    (("popart", 3, 4), {}, r"For pipelining, depth \(gradient accumulation factor\) must equal at least the number "
                           r"of pipeline stages \(5\)"),
    (("grouped", 2, 4), {"mapping": [0]}, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
    (("grouped", 2, 4), {"mapping": [0, -2]}, "stage 1 is mapped to -2"),
    (("interleaved", 2, 2), {"mapping": [0, 0]}, "The pipelining schedule 'Interleaved' does not currently support "
                                                 "multiple pipeline stages on the same device for training graphs"),
    (("gpipe", 2, 4), {}, "there is no schedule 'gpipe'; use grouped, interleaved, sequential, popart"),
    (("groupd", 2, 4), {}, "there is no schedule 'groupd'; .*; did you mean 'grouped'[?]"),
    (("grouped", 0, 4), {}, "0 stages are not possible"),
    (("grouped", 2, 8), {"iterations": 2}, "Batch serialization is only supported with the `Sequential` schedule."),
    (("sequential", 2, 8), {"io_tiles": True}, "I/O tiles need the grouped schedule"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "more", "text"), WRONG)
def test_refusals_come_before_the_first_slot(call: tuple[str, int, int], more: dict[str, Any], text: str) -> None:
    with pytest.raises(EmulatorError, match=text):
        schedule(*call, training=True, **more)


def test_popart_inference_counts_batches_per_step() -> None:
    with pytest.raises(EmulatorError, match=r"For pipelining, depth \(batchesPerStep\)"):
        schedule("popart", 3, 2, training=False)
    with pytest.raises(EmulatorError, match="forward stage 3"):
        depth("popart", 3, 3, True)
