"""Bounded read: a file is read whole; endless files, and anything but files, are refused immediately."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from popdist_py.files.bounded_read import open_given, open_regular, read_file


@pytest.mark.parametrize("length", [0, 1, (1 << 20) + 1])
def test_a_file_is_read_whole(length: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * length)
    (tmp_path / "link").symlink_to("x")
    for path in (tmp_path / "x", tmp_path / "link"):
        assert read_file(path) == read_file(path, length) == b"x" * length
    if length:
        with pytest.raises(OSError, match=f"more than the {length - 1:,} bytes"):
            read_file(tmp_path / "x", length - 1)


def test_a_file_whose_size_is_not_known_is_read_whole() -> None:
    assert b"Name:" in read_file("/proc/self/status")
    with pytest.raises(OSError, match="more than the 10 bytes"):
        read_file("/proc/self/status", 10)


def test_a_file_that_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> bytes:
        raise MemoryError

    (tmp_path / "x").touch()
    monkeypatch.setattr(os, "read", full)
    with pytest.raises(OSError, match="do not fit into memory"):
        read_file(tmp_path / "x")


def test_anything_but_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    for path, fault in ((tmp_path / "pipe", "pipe or a device"), (tmp_path / "endless", "pipe or a device")):
        with pytest.raises(OSError, match=fault):
            read_file(path, 100)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_that_a_user_names_may_be_devices_and_open_pipes_but_no_named_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="It is a pipe, no file"):
        open_given(tmp_path / "pipe")
    (tmp_path / "x").write_bytes(b"text")
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    for path, content in ((tmp_path / "x", b"text"), ("/dev/null", b""), (f"/dev/fd/{reader}", b"text")):
        with open(open_given(path), "rb") as stream:
            assert stream.read() == content
            assert os.get_blocking(stream.fileno())
    os.close(reader)
