"""Timeline traces for Perfetto: instructions inside of stages, by IPU and micro-batch, arrows, and IPUs at work."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from ipu_emu.hardware import System
from ipu_emu.program.clock import (
    CostCategory,
    ModelledMachine,
    Pricing,
    Span,
    TimelineSegment,
    timeline,
    timeline_files,
)
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import Pipeline, of_type, walk
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.trace_events import checked_events

A, STAGES = 6, 3
Event = dict[str, Any]
MACHINE = ModelledMachine(System.pod(16), ipus_per_replica=4)


@pytest.fixture(scope="module")
def executable() -> Executable:
    result: Executable = Tower(STAGES, plain=True).session(A=A, bps=2, **PIPELINE).executable
    return result


@pytest.fixture(scope="module")
def segment(executable: Executable) -> TimelineSegment:
    return timeline(executable, MACHINE)


@pytest.fixture(scope="module")
def events(segment: TimelineSegment, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    path = tmp_path_factory.mktemp("timeline") / "step.json"
    segment.save(path, "step")
    return checked_events(path.read_bytes())


def inside(event: Event, events: list[Event]) -> list[Event]:
    """The spans in the row of an event that are within its time."""
    begin, end = event["ts"], event["ts"] + event["dur"]
    return [
        other
        for other in events
        if other is not event
        and other["ph"] == "X"
        and other["tid"] == event["tid"]
        and begin - 1e-6 <= other["ts"] <= other["ts"] + other["dur"] <= end + 1e-6
    ]


def test_the_instructions_of_every_stage_are_inside_of_it_for_every_micro_batch(
    executable: Executable, events: list[Event]
) -> None:
    (pipeline,) = of_type(walk(executable.program), Pipeline)
    pricing = Pricing(executable, MACHINE)
    stages = [event for event in events if event["ph"] == "X" and "of stage" in event["name"]]
    assert len(stages) == 2 * A * len(pipeline.stages)  # of two batches
    for event in stages:
        (stage,) = [candidate for candidate in pipeline.stages if candidate.index == event["args"]["stage"]]
        parts = inside(event, events)
        expected = [leaf for leaf in stage.body if pricing.of(leaf).seconds]
        assert [part["name"] for part in parts] == [str(leaf) for leaf in expected]
        assert {part["args"]["micro-batch"] for part in parts} == {event["args"]["micro-batch"]}
        assert event["tid"] == 2 * stage.ipu
        times = [pricing.of(leaf).seconds * 1e6 for leaf in expected]
        assert [part["dur"] for part in parts] == pytest.approx(times, abs=2e-3)


def test_arrows_lead_each_micro_batch_through_the_stages(events: list[Event]) -> None:
    sent, received = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert len(sent) == 2 * A * (2 * STAGES - 2)  # of two batches, forward and backward
    assert all(sent[number]["tid"] != received[number]["tid"] for number in sent)


def test_the_counter_of_ipus_adds_up_to_their_work(segment: TimelineSegment, events: list[Event]) -> None:
    values = [(event["ts"], event["args"]["IPUs"]) for event in events if event["ph"] == "C"]
    assert max(count for _, count in values) == STAGES
    assert values[-1][1] == 0
    area = sum(count * (later - at) for (at, count), (later, _) in pairwise(values))
    assert area == pytest.approx(1e6 * sum(segment.by_ipu().values()), rel=1e-3)


def _json(segment: TimelineSegment) -> str:
    return json.dumps(timeline_files.timeline_trace("step", segment.seconds, segment.spans))


def test_transfers_during_compute_have_their_own_row() -> None:
    spans = [
        Span(0, 0.0, 2.0, "work", CostCategory.COMPUTE),
        Span(0, 1.0, 2.0, "load", CostCategory.BESIDE),
        Span(1, 0.0, 1.0, "work", CostCategory.COMPUTE),
    ]
    drawn = TimelineSegment(3.0, spans=spans)
    rows: dict[int, str] = {}
    names = defaultdict(list)
    for event in checked_events(_json(drawn)):
        if event["name"] == "thread_name":
            rows[event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            names[rows[event["tid"]]].append(event["name"])
    assert dict(names) == {
        "IPU 0 (modelled)": ["work"],
        "IPU 0, I/O tiles (modelled)": ["load"],
        "IPU 1 (modelled)": ["work"],
    }


def test_too_many_instructions_are_left_out_of_later_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "MOST_PARTS", 3)
    parts = [Span(0, 0.0, 1.0, "a", CostCategory.COMPUTE), Span(0, 1.0, 1.0, "b", CostCategory.COMPUTE)]
    spans = [Span(0, 2.0 * at, 2.0, "work", CostCategory.COMPUTE, parts=parts) for at in range(2)]
    trace = timeline_files.timeline_trace("step", 4.0, spans)
    assert [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"] == ["work", "a", "b", "work"]
    assert trace["otherData"]["spans_without_their_instructions"] == 1


def test_work_of_a_sharded_stage_on_another_ipu_is_in_its_row() -> None:
    parts = [Span(0, 0.0, 1.0, "here", CostCategory.COMPUTE), Span(1, 1.0, 1.0, "there", CostCategory.COMPUTE)]
    stage = Span(0, 0.0, 2.0, "stage", CostCategory.COMPUTE, {"stage": 0, "micro-batch": 4}, parts)
    written = checked_events(_json(TimelineSegment(2.0, spans=[stage])))
    spans = {event["name"]: (event["tid"], event["args"]) for event in written if event["ph"] == "X"}
    assert spans == {name: (row, stage.about) for name, row in (("stage", 0), ("here", 0), ("there", 2))}
    working = [(event["ts"], event["args"]["IPUs"]) for event in written if event["ph"] == "C"]
    assert working == [(0, 1), (1e6, 2), (2e6, 0)]
