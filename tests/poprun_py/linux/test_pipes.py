"""Pipes: a supervisor never blocks on a program that does not read or write."""

from __future__ import annotations

import os

from poprun_py.linux.pipes import InputPipe, OutputPipe


def test_output_is_read_until_its_end() -> None:
    reader, writer = os.pipe()
    pipe = OutputPipe(2, reader)
    assert (pipe.number, pipe.fileno(), pipe.read()) == (2, reader, None)
    os.write(writer, b"some")
    assert pipe.read() == b"some"
    assert pipe.read() is None
    os.close(writer)
    assert pipe.read() == b""
    pipe.close()
    pipe.close()
    assert not pipe.is_open


def test_input_is_written_as_fast_as_it_is_read_and_then_ends() -> None:
    reader, writer = os.pipe()
    pipe, data = InputPipe(writer), bytes(range(256)) * 4096
    assert not pipe.is_waiting
    assert pipe.push()
    pipe.give(data)
    pipe.give(b"")
    assert pipe.is_waiting
    got = b""
    while not pipe.push():
        assert not pipe.is_finished
        got += os.read(reader, 1 << 16)
    assert pipe.is_finished
    pipe.close()
    while part := os.read(reader, 1 << 16):
        got += part
    assert got == data
    os.close(reader)


def test_input_whose_reader_is_gone_is_discarded() -> None:
    reader, writer = os.pipe()
    pipe = InputPipe(writer)
    os.close(reader)
    pipe.give(b"x")
    assert pipe.push()
    assert pipe.is_finished
    pipe.close()
