"""Tagged output: whole lines, all bytes, in pieces of any size."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest

from poprun_py.output.tagged_output import LONGEST_LINE, TaggedOutput, Tagger, tag
from poprun_py.output.writer_thread import WriterThread
from poprun_py.wire.messages import STDERR, STDOUT


def tagged(pieces, rank=0, stream=STDOUT):
    tagger = Tagger(tag(rank, stream))
    return b"".join([*(tagger.feed(piece) for piece in pieces), tagger.finish()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", b""),
        (b"a\n", b"T:a\n"),
        (b"a", b"T:a\n"),
        (b"\n", b"T:\n"),
        (b"\n\n", b"T:\nT:\n"),
        (b"a\nb\n", b"T:a\nT:b\n"),
        (b"a\n\nb", b"T:a\nT:\nT:b\n"),
        (b"\xff\xfe\x00\n", b"T:\xff\xfe\x00\n"),
        (b"dos\r\n", b"T:dos\r\n"),
        (b" 1%\r 2%\r 3%\n", b"T: 3%\n"),
        (b"\r 1%\r 2%\r\n", b"T: 2%\r\n"),
        (b"a\r", b"T:a\r\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_lines_are_the_same_however_they_arrive(text, expected, size):
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert tagged(pieces) == expected.replace(b"T:", b"[1,0]<stdout>:")


def test_tags_name_rank_and_stream():
    assert tagged([b"x"], rank=12, stream=STDERR) == b"[1,12]<stderr>:x\n"


def test_random_bytes_pass_through():
    data = bytes(random.Random(1).choices(range(256), k=50_000)).replace(b"\r", b"") + b"\n"
    lines = tagged([data[at : at + 777] for at in range(0, len(data), 777)]).split(b"\n")
    assert b"\n".join(line.removeprefix(b"[1,0]<stdout>:") for line in lines) == data


def test_a_line_without_end_is_shown_in_pieces_and_not_kept():
    count = LONGEST_LINE // 65536 * 5 // 2
    text = tagged([b"x" * 65536] * count)
    assert text.count(b"x") == 65536 * count
    assert max(map(len, text.split(b"\n"))) <= LONGEST_LINE + 65536 + 20


def test_a_progress_bar_that_is_watched_moves_once_a_second():
    tagger = Tagger(tag(0, STDERR), live=True)
    shown = [tagger.feed(b"\r%d%%" % percent, now=percent / 10) for percent in range(25)]
    assert [line for line in shown if line] == [b"[1,0]<stderr>:%d%%\n" % percent for percent in (0, 10, 20)]
    assert tagger.feed(b"\r100%\n", now=9.0) == b"[1,0]<stderr>:100%\n"


def test_a_progress_bar_takes_no_memory():
    tagger = Tagger(tag(0, STDERR))
    tracemalloc.start()
    for percent in range(100):
        tagger.feed(b"\r" + b"#" * 10_000 + b"%d" % percent)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 40_000


class Collected:
    def __init__(self, instances, only=None, mixed=True):
        self.out, self.err, self.done = b"", b"", []
        self.output = TaggedOutput(instances, only=only, stdout=self.to_out, stderr=self.to_err, mixed=mixed)

    def to_out(self, lines, done):
        self.out += lines
        self.done.append(done)

    def to_err(self, lines, done):
        self.err += lines
        self.done.append(done)


def test_streams_are_separate_and_lines_of_instances_do_not_mix():
    got = Collected(2)
    for rank, stream, data in [(0, 1, b"a"), (1, 1, b"x\n"), (0, 2, b"e\n"), (0, 1, b"b\n"), (1, 1, b"y")]:
        got.output.write(rank, stream, data, lambda: None)
    got.output.finish(1)
    assert got.out == b"[1,1]<stdout>:x\n[1,0]<stdout>:ab\n[1,1]<stdout>:y\n"
    assert got.err == b"[1,0]<stderr>:e\n"


def test_hidden_and_incomplete_lines_count_as_delivered():
    got, dealt = Collected(2, only=0), []
    got.output.write(1, STDOUT, b"hidden\n", lambda: dealt.append("hidden"))
    got.output.write(0, STDOUT, b"no end yet", lambda: dealt.append("kept"))
    got.output.write(0, STDOUT, b"!\n", lambda: dealt.append("shown"))
    assert dealt == ["hidden", "kept"]
    assert got.out == b"[1,0]<stdout>:no end yet!\n"
    [done] = got.done
    done()
    assert dealt[-1] == "shown"


def test_last_lines_of_a_hidden_instance():
    got = Collected(2, only=0)
    got.output.write(1, STDERR, b"".join(b"line %d\n" % n for n in range(50)) + b"end", lambda: None)
    lines = got.output.last_lines(1)
    assert len(lines) == 20
    assert lines[-2:] == [b"line 49", b"end"]
    assert got.err == b""


def test_last_lines_that_were_just_shown_are_not_repeated():
    got = Collected(2)
    got.output.write(1, STDERR, b"Traceback\nError\n", lambda: None)
    got.output.write(0, STDOUT, b"a few more\n" * 9, lambda: None)
    assert got.output.last_lines(1) == []
    got.output.write(0, STDOUT, b"much else\n" * 50, lambda: None)
    assert got.output.last_lines(1) == [b"Traceback", b"Error"]


def test_last_lines_between_those_of_others_are_repeated():
    got = Collected(2)
    for number in range(20):
        got.output.write(1, STDERR, b"mine %d\n" % number, lambda: None)
        got.output.write(0, STDERR, b"others\n", lambda: None)
    assert got.output.last_lines(1) == [b"mine %d" % number for number in range(20)]


def test_stdout_that_goes_elsewhere_comes_between_nothing():
    got = Collected(2, mixed=False)
    got.output.write(1, STDERR, b"Error\n", lambda: None)
    got.output.write(0, STDOUT, b"much else\n" * 50, lambda: None)
    assert got.output.last_lines(1) == []


def test_a_writer_writes_everything_in_order_and_reports_it():
    reader, writer = os.pipe()
    wakes = []
    writer_thread = WriterThread(writer, lambda: wakes.append(1))
    writer_thread.start()
    dealt = []
    for number in range(100):
        writer_thread.put(b"%d\n" % number, lambda number=number: dealt.append(number))
    assert writer_thread.close(timeout=100)
    for done in writer_thread.written():
        done()
    os.close(writer)
    with open(reader, "rb") as stream:
        assert stream.read() == b"".join(b"%d\n" % number for number in range(100))
    assert dealt == list(range(100))
    assert wakes


def test_a_writer_without_a_reader_is_broken_not_blocking():
    reader, writer = os.pipe()
    writer_thread = WriterThread(writer, lambda: None)
    writer_thread.start()
    os.close(reader)
    writer_thread.put(b"x" * 1_000_000)
    assert writer_thread.close(timeout=100)
    assert writer_thread.error
    os.close(writer)


def test_a_slow_reader_blocks_the_writer_not_its_user():
    reader, writer = os.pipe()
    writer_thread = WriterThread(writer, lambda: None)
    writer_thread.start()
    writer_thread.put(b"x" * 1_000_000)
    assert not writer_thread.close(timeout=0.2)
    with open(reader, "rb") as stream:
        assert len(stream.read(1_000_000)) == 1_000_000
    assert writer_thread.close(timeout=100)
    os.close(writer)
