"""Traces of steps: every instruction is a span of its IPU, replica and micro-batch, and results do not change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ipu_emu import popart, trace
from ipu_emu.engine.calls.instruction_trace import MEASURED_ROUNDS, InstructionTrace, short_ones_together
from ipu_emu.engine.calls.step_counters import StepCounters
from ipu_emu.program.instructions import CountMicroBatch
from ipu_emu.trace import read_run
from tests.ipu_emu.helpers.pipelined_models import Tower, threads

A, R, STAGES = 6, 2, 3

CASES = {
    "one IPU": {},
    "pipeline": {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual},
}


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "trace"
    trace.stop()


@pytest.mark.parametrize("count", [1, 2], ids=["one thread", "two threads"])
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_a_step_is_traced_by_instruction(folder, monkeypatch, values, count):
    threads(monkeypatch, count)
    plain = Tower(STAGES).trained(A=A, R=R, steps=2, **values)
    trace.start(folder)
    traced = Tower(STAGES).trained(A=A, R=R, steps=2, **values)
    trace.stop()
    for name, value in plain.items():
        np.testing.assert_array_equal(value, traced[name])
    (process,) = read_run(folder).processes
    names, tracks = process.trace.names, process.trace.tracks
    forward = [span for span in process.spans if names[int(span["name"])].args.get("op") == "Gemm"]
    # every stage has one Gemm, which every replica runs for every micro-batch of both steps
    places = Counter((*tracks[int(span["track"])].args.values(), int(span["value"])) for span in forward)
    ipus = range(STAGES) if values else [0]
    per_place = 2 if values else 2 * STAGES
    assert places == {
        (replica, ipu, micro_batch): per_place for replica in range(R) for ipu in ipus for micro_batch in range(A)
    }
    if values:
        stages = {
            (names[int(span["name"])].args["stage"], tracks[int(span["track"])].args["ipu"]) for span in forward
        }
        assert stages == {(stage, stage) for stage in range(STAGES)}


def test_short_instructions_are_counted_and_named_when_they_are_timed_together(folder):
    steps = 1 + 2 * MEASURED_ROUNDS // A
    trace.start(folder)
    Tower(STAGES).trained(A=A, R=R, steps=steps)
    trace.stop()
    (process,) = read_run(folder).processes
    names, tracks = process.trace.names, process.trace.tracks
    gemms = [span for span in process.spans if names[int(span["name"])].args.get("op") == "Gemm"]
    counts = Counter((tracks[int(span["track"])].args["replica"], int(span["value"])) for span in gemms)
    assert counts == {(replica, micro_batch): STAGES * steps for replica in range(R) for micro_batch in range(A)}
    assert any("groups" in name.args for name in names.values())


def test_short_ones_of_one_kind_are_timed_together():
    assert short_ones_together([9000, 10000, 2000, 500, 40000, 1, 1], "aaaaabb") == [
        *([9000, 10000], [2000, 500], [40000], [1, 1]),
    ]
    assert short_ones_together([500, 40000, 500], "aab") == [[500, 40000], [500]]


def test_a_chain_of_any_length_is_recorded(folder):
    recorder = trace.start(folder)
    count, ran = 40_000, []
    leaves = [(CountMicroBatch("keep", "take"), [lambda: ran.append(1)])] * count
    call = InstructionTrace(recorder, 0).chain(leaves, None, StepCounters())
    for _ in range(2):
        call()
    trace.stop()
    (process,) = read_run(folder).processes
    assert len(process.spans) == len(ran) == 2 * count


def test_spans_of_a_thread_nest_and_do_not_overlap(folder, monkeypatch):
    threads(monkeypatch, 2)
    trace.start(folder)
    Tower(STAGES).trained(A=A, R=R, **CASES["pipeline"])
    trace.stop()
    (process,) = read_run(folder).processes
    for thread in process.trace.threads:
        inside: list[int] = []
        own = process.spans[process.spans["thread"] == thread]
        for span in sorted(own, key=lambda span: (span["begin"], -span["end"])):
            while inside and inside[-1] <= span["begin"]:
                inside.pop()
            assert not inside or span["end"] <= inside[-1], process.trace.names[int(span["name"])]
            inside.append(int(span["end"]))


def test_the_phases_of_a_session_are_traced(folder):
    trace.start(folder)
    Tower(STAGES).trained(A=A, R=R)
    trace.stop()
    (process,) = read_run(folder).processes
    names = {process.trace.names[int(span["name"])].name for span in process.spans}
    expected = {"compile", "differentiate", "plan-memory", "load the engine", "weights to the device", "step"}
    assert expected <= names
    categories = {process.trace.names[int(span["name"])].category for span in process.spans}
    assert {"compilation", "initialisation", "weight loading", "host I/O", "compute", "weight update"} <= categories


def test_a_span_is_a_decorator_whether_or_not_a_trace_is_recorded(folder):
    @trace.span("augment")
    def augment(image: int) -> int:
        """Twice the image."""
        return 2 * image

    assert augment(2) == 4
    trace.start(folder)
    assert augment(3) == 6

    @trace.span("crop", size=3)
    def crop() -> None: ...

    crop()
    trace.stop()
    crop()
    (process,) = read_run(folder).processes
    assert [process.trace.names[int(span["name"])].name for span in process.spans] == ["augment", "crop"]
    assert augment.__doc__ == "Twice the image."
