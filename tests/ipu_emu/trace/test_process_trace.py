"""Traces: records are read from complete, running, killed and damaged files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from time import perf_counter_ns

import numpy as np
import pytest

from ipu_emu.errors import ArgumentError
from ipu_emu.trace import read_process, read_run
from ipu_emu.trace.timelines.perfetto import trace_events
from popdist_py.trace import Category, Kind, Recorder, start, stop
from popdist_py.trace.records import (
    CHUNK_BYTES,
    HEADER,
    HEADER_BYTES,
    LONGEST_SEQUENCE,
    RECORD_WORDS,
    VERSION,
    key_of,
)
from tests.helpers.mpi_jobs import PROGRAMS

SPANS = str(PROGRAMS / "ipu_emu/spans.py")


@pytest.fixture
def recorder(tmp_path):
    result = Recorder(str(tmp_path), limit=64 << 20, about={"pid": os.getpid(), "host": "here"})
    yield result
    result.close()


def test_existing_files_at_the_name_of_a_trace_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "thesis").write_text("text")
    (tmp_path / f"{os.getpid()}.{'00' * 8}.trace").symlink_to("thesis")
    with pytest.raises(FileExistsError):
        Recorder(str(tmp_path), limit=1 << 20, about={})
    assert (tmp_path / "thesis").read_text() == "text"


def run(*words, folder):
    """Exit code of Python with these arguments, traced into ``folder``."""
    environment = os.environ | {"IPU_EMU_TRACE": str(folder)}
    return subprocess.run([sys.executable, *words], env=environment, check=False).returncode


def names(trace, kind=Kind.SPAN):
    return [trace.names[int(record["name"])].name for record in trace.records if record["kind"] == kind]


def test_spans_nest_and_keep_their_names(recorder):
    before = perf_counter_ns()
    with recorder.span(recorder.name("outer", Category.COMPUTE, bytes=12)), recorder.span(recorder.name("inner")):
        pass
    outer, inner = (trace := read_process(recorder.path)).records
    assert names(trace) == ["outer", "inner"]
    assert before <= outer["begin"] <= inner["begin"] <= inner["end"] <= outer["end"] <= perf_counter_ns()
    assert trace.names[int(outer["name"])].category == "compute"
    assert trace.names[int(outer["name"])].args == {"bytes": 12}
    assert trace.process["host"] == "here"


def test_counters_instants_flows_and_tracks(recorder):
    track = recorder.track("IPU 3", ipu=3)
    recorder.counter(recorder.name("loss"), 0.25)
    recorder.instant(recorder.name("epoch"), track=track, value=7)
    recorder.flow(recorder.name("message"), 99, out=True)
    trace = read_process(recorder.path)
    counter, instant, flow = trace.records
    assert counter["kind"] == Kind.COUNTER
    assert np.int64(counter["value"]).view(np.float64) == 0.25
    assert instant["value"] == 7
    assert trace.tracks[int(instant["track"])].args == {"ipu": 3}
    assert flow["kind"] == Kind.FLOW_OUT
    assert flow["value"] == 99


def test_counters_that_json_has_no_number_for_are_null_for_perfetto(recorder, tmp_path):
    for value in (0.25, float("nan"), float("inf"), float("-inf")):
        recorder.counter(recorder.name("loss"), value)

    def refuse(constant):
        raise AssertionError(constant)

    recorder.close()
    document = json.loads(trace_events(read_run(tmp_path)), parse_constant=refuse)
    values = [event["args"]["value"] for event in document["traceEvents"] if event["ph"] == "C"]
    assert values == [0.25, None, None, None]


def begin_and_stamp(sequence, count):
    """Run the first ``count`` spans of the next round."""
    words, places = sequence.rounds()
    start = next(places)
    words[start] = perf_counter_ns()
    for i in range(count):
        words[start + RECORD_WORDS + i] = perf_counter_ns()


@pytest.mark.parametrize("count", [1, 3, 4, 5, 63])
def test_a_sequence_is_read_as_spans_without_gaps(recorder, count):
    sequence = recorder.sequence([recorder.name(f"op {i}") for i in range(count)])
    for _ in range(3):
        begin_and_stamp(sequence, count)
    trace = read_process(recorder.path)
    assert names(trace) == [f"op {i}" for i in range(count)] * 3
    rounds = trace.records.reshape(3, count)
    assert (rounds["begin"][:, 1:] == rounds["end"][:, :-1]).all()


def test_a_sequence_that_is_interrupted_ends_with_an_open_span(recorder):
    begin_and_stamp(recorder.sequence([recorder.name(name) for name in "abc"]), 1)
    trace = read_process(recorder.path)
    assert names(trace) == ["a", "b"]
    assert trace.records["end"][1] == 0


def test_each_thread_has_its_own_records(recorder):
    def work(number):
        for _ in range(10_000):  # more than one chunk
            recorder.record(key_of(Kind.SPAN, recorder.name(f"thread {number}")), 1 + number, 2 + number)

    threads = [threading.Thread(target=work, args=(number,), name=f"worker {number}") for number in range(4)]
    for worker in threads:
        worker.start()
    for worker in threads:
        worker.join()
    trace = read_process(recorder.path)
    assert len(trace.records) == 40_000
    assert trace.dropped == 0
    for thread, name in trace.threads.items():
        own = trace.records[trace.records["thread"] == thread]
        assert len(own) == 10_000
        assert set(own["begin"]) == {1 + int(name.split()[1])}


def test_records_beyond_the_limit_are_counted(tmp_path):
    recorder = Recorder(str(tmp_path), limit=HEADER_BYTES + 2 * CHUNK_BYTES, about={})
    name, room = recorder.name("x"), CHUNK_BYTES // 32 - 1
    for _ in range(room + 100):
        with recorder.span(name):
            pass
    trace = read_process(recorder.path)
    assert len(trace.records) == room
    assert trace.dropped == 100
    assert os.path.getsize(recorder.path) == HEADER_BYTES + 2 * CHUNK_BYTES


def test_a_full_disk_ends_recording_and_nothing_else(tmp_path, monkeypatch):
    recorder = Recorder(str(tmp_path), limit=64 << 20, about={})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with recorder.span(recorder.name("x")):
        pass
    assert read_process(recorder.path).dropped == 1


def test_a_killed_process_leaves_all_spans_and_the_open_one(tmp_path):
    assert run(SPANS, "killed", folder=tmp_path) == -signal.SIGKILL
    (process,) = read_run(tmp_path).processes
    assert len(process.spans) == 1001
    assert [name for name, _ in process.open] == ["the last"]


def test_a_forked_child_writes_its_own_file(tmp_path, monkeypatch):
    assert run(SPANS, "forked", folder=tmp_path) == 0
    by_process = [names(process.trace) for process in read_run(tmp_path).processes]
    assert sorted(by_process) == [["child"], ["parent"]]


@pytest.mark.parametrize(
    "content", [b"", b"IPU", b"\0" * 8192, b"x" * 300_000], ids=["empty", "short", "zero", "text"]
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "1.trace").write_bytes(content)
    with pytest.raises(ArgumentError, match=r"1\.trace"):
        read_run(tmp_path)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "1.trace")
    with pytest.raises(ArgumentError, match="a pipe or a device"):
        read_run(tmp_path)


DAMAGE = {
    "pid": ("pid", "x"),
    "host": ("host", 3),
    "clock": ("clock", {"realtime_ns": "x", "monotonic_ns": 1, "error_ns": 1}),
    "a clock of another form": ("clock", 5),
    "environment": ("environment", {"POPDIST_REPLICA_INDEX_OFFSET": "x"}),
    "an environment of another form": ("environment", []),
}


@pytest.mark.parametrize(("key", "value"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_facts_are_refused(key, value, tmp_path):
    Recorder(str(tmp_path), limit=1 << 20, about={key: value}).close()
    with pytest.raises(ArgumentError, match=f"damaged.*{key}"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "offsets", [5, ["x"], [{}], [{"at_ns": 0, "offset_ns": 1, "error_ns": None}], [{"offset_ns": 1 << 70}]]
)
def test_damaged_clock_offsets_are_refused(offsets, recorder):
    recorder.define({"clock_offsets": offsets})
    with pytest.raises(ArgumentError, match=r"damaged.*clock_offsets"):
        read_process(recorder.path)


def test_clocks_that_are_centuries_apart_are_refused(tmp_path):
    for host, real in (("a", 1 - (1 << 62)), ("b", (1 << 62) - 1)):
        clock = {"realtime_ns": real, "monotonic_ns": -real, "error_ns": 0}
        recorder = Recorder(str(tmp_path), limit=1 << 20, about={"host": host, "boot": host, "clock": clock})
        recorder.record(key_of(Kind.SPAN, recorder.name("x")), 1, 2)
        recorder.close()
    with pytest.raises(ArgumentError, match=r"damaged.*clocks"):
        read_run(tmp_path)


def test_records_without_a_definition_have_no_name(recorder):
    too_long = recorder.name("x" * (1 << 17))
    with recorder.span(too_long, track=9):
        pass
    for spans in ({"a": 1}, ["x", -1, 1 << 40]):
        recorder.record(key_of(Kind.SEQUENCE, recorder.name("sequence", spans=spans)), 1, 0, 3)
    trace = read_process(recorder.path)
    assert [trace.names[int(record["name"])].name for record in trace.records] == ["(no name)"]
    assert trace.tracks[9].name == "(no name)"


def test_a_truncated_file_keeps_its_whole_chunks(recorder):
    for _ in range(CHUNK_BYTES // 32 + 10):
        recorder.instant(recorder.name("x"))
    os.truncate(recorder.path, os.path.getsize(recorder.path) - 1)
    assert len(read_process(recorder.path).records) == CHUNK_BYTES // 32 - 1


def test_zeros_at_the_end_of_a_file_are_not_read(recorder):
    recorder.instant(recorder.name("x"))
    os.truncate(recorder.path, 900 << 30)
    assert len(read_process(recorder.path).records) == 1


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_a_folder_without_traces_says_how_to_record_one(tmp_path, missing):
    with pytest.raises(ArgumentError, match="--trace"):
        read_run(tmp_path / missing)


def test_times_of_two_hosts_are_aligned_by_the_measured_offset(tmp_path):
    for host, shift in (("a", 0), ("b", 5_000_000)):
        recorder = Recorder(str(tmp_path), limit=64 << 20, about={"host": host, "boot": host, "clock": {}})
        offset = {"at_ns": 0, "offset_ns": -shift, "error_ns": 100 if shift else 0}
        recorder.define({"clock_offsets": [offset]})
        recorder.record(key_of(Kind.SPAN, recorder.name("x")), 1_000_000 + shift, 2_000_000 + shift)
        recorder.close()
    run = read_run(tmp_path)
    assert {process.host: (int(process.records["begin"][0]), process.error) for process in run.processes} == {
        "a": (0, 0),
        "b": (0, 100),
    }
    assert run.seconds == 0.001


def test_clocks_that_do_not_run_equally_fast_are_aligned_between_two_measurements(tmp_path):
    """A clock that runs 0.1 % fast is 1 ms ahead at first and 3 ms ahead 2 s later."""
    for host, rate, ahead in (("a", 1, 0), ("b", 1.001, 1_000_000)):
        recorder = Recorder(str(tmp_path), limit=64 << 20, about={"host": host, "boot": host, "clock": {}})
        times = [ahead + int(rate * nanosecond) for nanosecond in range(1, 2_000_000_002, 250_000_000)]
        for at, error in ((0, 100), (2_000_000_000, 300)):
            own = ahead + int(rate * at)
            offset = {"at_ns": own, "offset_ns": at - own, "error_ns": error if ahead else 0}
            recorder.define({"clock_offsets": [offset]})
        for time in times:
            recorder.record(key_of(Kind.SPAN, recorder.name("x")), time, time + 1)
        recorder.close()
    first, second = sorted(read_run(tmp_path).processes, key=lambda process: process.host)
    assert abs(first.records["begin"] - second.records["begin"]).max() <= 1
    assert [process.error for process in (first, second)] == [0, 300]


def test_a_trace_of_another_version_is_not_called_damaged(recorder):
    recorder.define({"clock_offsets": 7})  # which means something else there
    recorder.close()
    with open(recorder.path, "r+b") as file:
        start = HEADER.unpack(file.read(HEADER.size))
        file.seek(0)
        file.write(HEADER.pack(start[0], VERSION - 1, *start[2:]))
    with pytest.raises(ArgumentError, match="was recorded in version") as refused:
        read_process(recorder.path)
    assert "damaged" not in str(refused.value)


def test_a_process_that_another_one_started_ran_the_program_if_it_has_steps(tmp_path):
    for pid, parent, name in ((1, 0, "mark"), (2, 1, "step"), (3, 2, "prepare data")):
        recorder = Recorder(str(tmp_path), limit=64 << 20, about={"host": "a", "pid": pid, "parent": parent})
        recorder.record(key_of(Kind.SPAN, recorder.name(name)), 10, 20)
        recorder.close()
    run = read_run(tmp_path)
    assert sorted(process.trace.process["pid"] for process in run.processes) == [1, 2, 3]
    assert sorted(process.trace.process["pid"] for process in run.instances) == [1, 2]


@pytest.mark.parametrize("limit", ["9" * 5000, "-3", "0", "1.5", "²"])
def test_an_invalid_limit_is_reported_and_the_default_is_used(limit, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IPU_EMU_TRACE_LIMIT", limit)
    try:
        assert start(tmp_path) is not None
    finally:
        stop()
    assert "is not a number of MiB; 512 are used" in capsys.readouterr().err


def test_spans_that_are_timed_together_share_their_time_as_they_did_before(recorder):
    own = [recorder.name(name) for name in "abc"]
    words, places = recorder.sequence(own, groups=[[3, 1], [1]]).rounds()
    start = next(places)
    words[start], words[start + RECORD_WORDS], words[start + RECORD_WORDS + 1] = 1000, 1400, 2000
    start = next(places)
    words[start], words[start + RECORD_WORDS] = 3000, 3800  # then it was killed
    trace = read_process(recorder.path)
    spans = [
        (trace.names[int(record["name"])].name, int(record["begin"]), int(record["end"])) for record in trace.records
    ]
    assert spans == [
        *(("a", 1000, 1300), ("b", 1300, 1400), ("c", 1400, 2000)),
        *(("a", 3000, 3600), ("b", 3600, 3800), ("c", 3800, 0)),
    ]


@pytest.mark.parametrize("groups", [3, [[]], [["x"]], [[1, 1]], [[1 << 70]]])
def test_a_sequence_with_damaged_proportions_has_no_spans(groups, recorder):
    name = recorder.name("sequence", spans=[recorder.name("a")], groups=groups)
    recorder.record(key_of(Kind.SEQUENCE, name), 1, 0, 1)
    recorder.record(1, 2, 3)  # its time stamps
    assert len(read_process(recorder.path).records) == 0


def test_a_sequence_that_is_too_long_is_refused(recorder):
    with pytest.raises(ValueError, match=f"give at most {LONGEST_SEQUENCE}"):
        recorder.sequence([1] * (LONGEST_SEQUENCE + 1))
    begin_and_stamp(recorder.sequence(range(1, LONGEST_SEQUENCE + 1)), LONGEST_SEQUENCE)
    assert len(read_process(recorder.path).records) == LONGEST_SEQUENCE


def test_rounds_are_prepared_for_one_thread_and_end_with_the_limit(tmp_path):
    recorder = Recorder(str(tmp_path), limit=HEADER_BYTES + 2 * CHUNK_BYTES, about={})
    sequence = recorder.sequence([recorder.name("a")])
    prepared = [len(list(sequence.rounds()[1])) for _ in range(8)]
    assert prepared == [2, 4, 8, 16, 32, 64, 64, 64]
    assert len(list(sequence.rounds(first=True)[1])) == 1
    words, places = sequence.rounds()
    while words.nbytes == CHUNK_BYTES:
        words, places = sequence.rounds()
    assert len(list(places)) == 1  # of no file
    trace = read_process(recorder.path)
    assert (len(trace.records), trace.dropped) == (0, 2)
