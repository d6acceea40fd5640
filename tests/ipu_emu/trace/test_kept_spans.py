"""Kept spans: marks of one name, nested, in several threads, of a killed process, and marks of many names."""

from __future__ import annotations

import os
import random
import sys
import threading
from itertools import pairwise

import pytest

from ipu_emu.trace import read_process, self_time
from popdist_py import trace
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.kept_span import KeptSpan
from popdist_py.trace.records import CHUNK_BYTES, HEADER_BYTES, RECORD_WORDS, WORD_BYTES, key_of

#: More than are prepared at once.
COUNT = 1000


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "trace"
    trace.stop()


def recorded(recorder):
    """Thread, name, start and end of all records."""
    process = read_process(recorder.path)
    return [
        (int(record["thread"]), process.names[int(record["name"])].name, int(record["begin"]), int(record["end"]))
        for record in process.records
    ]


def depths(records):
    """The number of spans around each one, which must contain it completely."""
    counts = []
    for _, _, begin, end in records:
        around = [(first, last) for _, _, first, last in records if first < begin < last]
        assert all(end < last for _, last in around)
        counts.append(len(around))
    return counts


def test_a_mark_inside_one_of_the_same_name_has_its_own_times(folder):
    recorder = trace.start(folder)

    def descend(levels):
        with trace.span("level"):
            if levels > 1:
                descend(levels - 1)

    descend(3)
    descend(2)
    assert depths(recorded(recorder)) == [0, 1, 2, 0, 1]


def test_a_mark_that_is_kept_by_the_caller_can_be_entered_again_inside_it(folder):
    recorder = trace.start(folder)
    mark = trace.span("mark")
    for _ in range(2):
        with mark, trace.span("mark"), mark:
            pass
    assert depths(recorded(recorder)) == [0, 1, 2] * 2


@pytest.mark.parametrize("seed", range(3))
def test_marks_inside_each_other_end_in_the_memory_where_they_began(folder, seed):
    """Blocks of 0 to 12 levels, of which outer ones stay open while memory is prepared several times."""
    recorder, levels, choose = trace.start(folder), [], random.Random(seed)

    def block(level):
        with trace.span("mark"):
            levels.append(level)
            while level < 12 and choose.random() < (0.95 if level < 2 else 0.4):
                block(level + 1)

    while len(levels) < 4 * COUNT:
        block(0)
    process = read_process(recorder.path)
    assert (process.records["end"] >= process.records["begin"]).all()
    order, depth = self_time.depths(process.records)
    assert (order == range(len(levels))).all()
    assert depth.tolist() == levels


def test_a_mark_that_is_open_while_many_inside_it_run_has_its_own_end(folder):
    recorder = trace.start(folder)
    with trace.span("mark"):
        for _ in range(10 * COUNT):  # more than one chunk of the file
            with trace.span("mark"):
                pass
    records = read_process(recorder.path).records
    assert len(records) == 10 * COUNT + 1
    assert records["end"][0] == records["end"].max()
    assert (records["end"][1:-1] <= records["begin"][2:]).all()


def test_marks_inside_each_other_beyond_the_limit_are_counted_and_the_open_one_ends(tmp_path):
    recorder = Recorder(str(tmp_path), limit=HEADER_BYTES + 2 * CHUNK_BYTES, about={})
    mark, room = KeptSpan(recorder, key_of(Kind.SPAN, recorder.name("mark"))), CHUNK_BYTES // 32 - 1
    with mark:
        for _ in range(room + COUNT):
            with mark, mark:
                pass
    process = read_process(recorder.path)
    assert len(process.records) == room
    assert process.dropped == 2 * (room + COUNT) + 1 - room
    assert (process.records["end"] >= process.records["begin"]).all()
    assert process.records["end"][0] >= process.records["end"].max()


def test_each_thread_keeps_its_own_mark_for_each_category(folder):
    recorder = trace.start(folder)
    marks = []

    def work():
        for category in (Category.USER, Category.DATA):
            mark = trace.span("mark", category)
            assert isinstance(mark, KeptSpan)
            assert mark is trace.span("mark", category)
            marks.append(mark)
            with mark:
                pass

    work()
    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert len({id(mark) for mark in marks}) == 4
    process = read_process(recorder.path)
    what = [(int(record["thread"]), process.names[int(record["name"])].category) for record in process.records]
    (first, second) = dict.fromkeys(thread for thread, _ in what)
    assert what == [(thread, category) for thread in (first, second) for category in ("user", "data preparation")]


def test_a_block_that_raises_has_ended(folder):
    recorder = trace.start(folder)
    for _ in range(2):
        with pytest.raises(KeyError), trace.span("mark"):
            raise KeyError
    assert depths(recorded(recorder)) == [0, 0]


def test_a_mark_in_two_threads_at_once_is_recorded_for_each(folder):
    recorder = trace.start(folder)
    mark, both = trace.span("mark"), threading.Barrier(2)

    def work():
        with mark:
            both.wait()  # both are inside
            with trace.span("mark"):
                both.wait()
            both.wait()
        for _ in range(COUNT):
            with trace.span("mark"):
                pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for started in threads:
        started.start()
    for started in threads:
        started.join()
    records = recorded(recorder)
    assert len({thread for thread, *_ in records}) == 2
    for thread in {thread for thread, *_ in records}:
        own = [record for record in records if record[0] == thread]
        assert len(own) == 2 + COUNT
        assert depths(own[:20]) == [0, 1] + 18 * [0]
        assert all(last[3] <= record[2] for last, record in pairwise(own[2:]))


def test_a_mark_that_many_threads_enter_first_at_the_same_moment_is_recorded_for_each(folder):
    """Each of them needs separate calls immediately, and must leave by the calls of its entry."""
    recorder = trace.start(folder)
    switching, marks, count = sys.getswitchinterval(), [trace.span(f"mark {number}") for number in range(100)], 4
    every = threading.Barrier(count, timeout=20)

    def work():
        for mark in marks:
            every.wait()
            with mark:
                every.wait()

    threads = [threading.Thread(target=work) for _ in range(count)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    records = recorded(recorder)
    assert len(records) == count * len(marks)
    assert all(end > begin for _, _, begin, end in records)


def test_records_that_are_only_prepared_are_not_read(folder):
    recorder = trace.start(folder)
    for _ in range(5):  # memory is prepared for 1, 2, 4
        with trace.span("mark"):
            pass
    words = memoryview(recorder._own.chunk[0])
    prepared = sum(words[at + 3] != 0 for at in range(RECORD_WORDS, CHUNK_BYTES // WORD_BYTES, RECORD_WORDS))
    assert prepared > 5
    assert len(recorded(recorder)) == 5


def test_a_process_that_is_killed_inside_kept_spans_leaves_whole_ones_and_the_open_ones(folder):
    child = os.fork()
    if not child:
        try:
            trace.start(folder)
            for _ in range(COUNT):
                with trace.span("mark"):
                    pass
            with trace.span("mark"), trace.span("other"), trace.span("mark"):
                os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    (path,) = folder.iterdir()
    process = read_process(path)
    names = [process.names[int(record["name"])].name for record in process.records]
    assert names == ["mark"] * (COUNT + 1) + ["other", "mark"]
    assert (process.records["end"] != 0).tolist() == [True] * COUNT + [False] * 3
    assert (process.records["end"] >= process.records["begin"])[:COUNT].all()


def test_a_process_that_is_killed_inside_marks_of_one_name_leaves_the_outer_ones_open(folder):
    child = os.fork()
    if not child:
        try:
            trace.start(folder)
            with trace.span("mark"), trace.span("mark"):
                for _ in range(COUNT):
                    with trace.span("mark"):
                        pass
                with trace.span("mark"):
                    os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    (path,) = folder.iterdir()
    ends = read_process(path).records["end"]
    assert (ends != 0).tolist() == [False, False, *[True] * COUNT, False]


def test_spans_of_many_names_do_not_keep_a_mark_each(folder):
    recorder = trace.start(folder)
    for number in range(3000):
        with trace.span(f"step {number}"):
            pass
    marks = {id(trace.span(f"step {number}")) for number in range(1500, 1600)}
    assert [name for _, name, _, _ in recorded(recorder)] == [f"step {number}" for number in range(3000)]
    assert len(marks) < 100


def test_spans_after_a_new_start_are_in_its_file(folder, tmp_path):
    trace.start(folder)
    with trace.span("mark"):
        second = trace.start(tmp_path / "second")
    with trace.span("mark"):
        pass
    assert [name for _, name, _, _ in recorded(second)] == ["mark"]
