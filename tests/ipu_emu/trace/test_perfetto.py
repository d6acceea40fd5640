"""Perfetto: a row for every IPU, instructions inside of their stage, and arrows from stage to stage."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from ipu_emu import popart, trace
from ipu_emu.trace import read_run
from ipu_emu.trace.timelines.perfetto import trace_events
from tests.ipu_emu.helpers.pipelined_models import Tower, threads
from tests.ipu_emu.helpers.trace_events import checked_events

A, R, STAGES, STEPS = 6, 2, 3, 2
PIPELINED = {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual}


@pytest.fixture(scope="module", params=[1, 2], ids=["one thread", "two threads"])
def events(request: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        threads(patch, request.param)
        trace.start(folder)
        Tower(STAGES).trained(A=A, R=R, steps=STEPS, **PIPELINED)
        trace.stop()
    return checked_events(trace_events(read_run(folder)))


def rows(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def stages(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == "stage"]


def test_every_ipu_of_a_replica_has_a_row(events: list[dict[str, Any]]) -> None:
    expected = {f"replica {replica}, IPU {ipu}" for replica in range(R) for ipu in range(STAGES)}
    assert expected <= set(rows(events).values())


def test_every_micro_batch_passes_every_stage_once(events: list[dict[str, Any]]) -> None:
    names = rows(events)
    replica = {row: name.split(",")[0] for row, name in names.items()}
    passes = Counter(
        (replica[stage["tid"]], stage["name"], stage["args"]["step"], stage["args"]["micro-batch"])
        for stage in stages(events)
    )
    count = 2 * STAGES - 1  # forward and backward; the last stage does both
    assert len(passes) == R * count * STEPS * A
    assert set(passes.values()) == {1}


def test_instructions_of_stages_are_inside_of_them(events: list[dict[str, Any]]) -> None:
    names, inside = rows(events), {}
    for event in stages(events):
        key = event["tid"], event["args"]["step"], event["args"]["stage"], event["args"]["micro-batch"]
        inside[key] = (event["ts"], event["ts"] + event["dur"])
    steps = sorted(event["ts"] for event in events if event["name"] == "step")
    checked = 0
    for event in events:
        about = event.get("args", {})
        if event["ph"] != "X" or event["cat"] == "stage" or "stage" not in about or "IPU" not in names[event["tid"]]:
            continue
        step = sum(begin <= event["ts"] for begin in steps)
        begin, end = inside[event["tid"], step, about["stage"], about["value"]]
        assert begin <= event["ts"] + 1e-3
        assert event["ts"] + event["dur"] <= end + 1e-3
        checked += 1
    assert checked >= R * A * STEPS * STAGES


def test_arrows_go_from_each_stage_to_the_next_and_never_back_in_time(events: list[dict[str, Any]]) -> None:
    ends = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"}
    assert ends["s"].keys() == ends["f"].keys()
    assert len(ends["s"]) == R * A * STEPS * (2 * STAGES - 2)
    for id, sent in ends["s"].items():
        received = ends["f"][id]
        assert sent["ts"] <= received["ts"]
        assert sent["tid"] != received["tid"]
        for end in (sent, received):
            around = [stage for stage in stages(events) if stage["tid"] == end["tid"]]
            assert any(stage["ts"] <= end["ts"] <= stage["ts"] + stage["dur"] for stage in around)


def test_a_counter_says_how_many_ipus_work(events: list[dict[str, Any]]) -> None:
    values = [(event["ts"], event["args"]["IPUs"]) for event in events if event["name"] == "IPUs at work"]
    assert values[-1][1] == 0
    assert all(0 <= count <= R * STAGES for _, count in values)
    area = sum(count * (later - at) for (at, count), (later, _) in pairwise(values))
    assert area == pytest.approx(sum(stage["dur"] for stage in stages(events)))


def test_a_run_without_steps_has_no_stages(tmp_path: Any) -> None:
    recorder = trace.start(tmp_path)
    with trace.span("mark"):
        pass
    trace.stop()
    written = checked_events(trace_events(read_run(tmp_path)))
    assert recorder is not None
    assert [event["name"] for event in written if event["ph"] == "X"] == ["mark"]
