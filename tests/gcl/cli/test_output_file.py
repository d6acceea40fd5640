"""Output files: a command writes its file completely or not at all, and leaves no other file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gcl.cli.output_file import check_writable, write_text
from gcl.errors import ArgumentError


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    for text in ("first", "second"):
        write_text(path, text, "--out")
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["out.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_no_file_remains_when_it_cannot_be_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ArgumentError, match=r"--out .*out.txt cannot be written: No space left on device"):
        write_text(tmp_path / "out.txt", "text", "--out")
    assert os.listdir(tmp_path) == []


def test_a_name_of_any_length_is_written_or_refused(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "text", "--out")
    with pytest.raises(ArgumentError, match="cannot be written: File name too long"):
        write_text(tmp_path / ("x" * 256), "text", "--out")
    assert os.listdir(tmp_path) == ["x" * 255]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_text(path, "text", "--out")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert path.is_fifo()


def test_a_link_remains_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "text", "--out")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "--out '' is not valid"), ("nowhere/x", "there is no folder"), ("folder", "it is a folder")],
)
def test_faults_are_reported_before_writing(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArgumentError, match=message):
        check_writable(tmp_path / name if name else Path(), "--out")
    assert os.listdir(tmp_path) == ["folder"]
