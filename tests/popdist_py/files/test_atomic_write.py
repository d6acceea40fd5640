"""A file is written completely or not at all, and nothing else is left in its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from popdist_py.files.atomic_write import change_file, replace_file, write_fault

MIB = bytes(1 << 20)


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_written_and_replaced(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "out"
    for parts in ((b"first",), (b"sec", memoryview(b"ond"))):
        replace_file(path, *parts, sync=sync)
        assert path.read_bytes() == b"".join(parts)
    assert os.listdir(tmp_path) == ["out"]


def test_modes_follow_the_umask_or_are_the_owners(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "shared", b"")
        replace_file(tmp_path / "own", b"", mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("shared", "own")] == [0o640, 0o600]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "out").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device"):
        replace_file(tmp_path / "out", MIB, sync=True)
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_a_file_is_changed_in_places_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"0123456789")
    path.chmod(0o620)
    change_file(str(path), [(8, b"YYY"), (2, memoryview(b"xx")), (3, b"z")])
    assert path.read_bytes() == b"01xz4567YYY"
    assert path.stat().st_mode & 0o777 == 0o620
    assert os.listdir(tmp_path) == ["out"]


def test_a_change_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    def pieces() -> Iterator[tuple[int, bytes]]:
        yield 0, b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        change_file(str(tmp_path / "out"), pieces())
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_a_pipe_is_not_changed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="It is a pipe or a device"):
        change_file(str(tmp_path / "pipe"), [])
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_no_link_is_followed_to_change_a_file(tmp_path: Path, link: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "data").write_bytes(b"private")
    (tmp_path / "file").symlink_to("private/data")
    (tmp_path / "folder").symlink_to("private")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        change_file(str(tmp_path / "file" if link == "file" else tmp_path / "folder" / "data"), [(0, b"x")])
    assert (tmp_path / "private" / "data").read_bytes() == b"private"
    assert os.listdir(tmp_path / "private") == ["data"]


def test_nobody_can_foresee_the_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(old), replace(old, new)))
    for _ in range(8):
        replace_file(tmp_path / "out", b"text")
    assert len(set(names)) == 8
    assert all(re.search(r"[0-9a-f]{16}", os.path.basename(name)) for name in names)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_existing_files_at_the_temporary_name_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "thesis").write_text("text")
    planted = tmp_path / f".out.{'00' * 8}.tmp"
    if kind == "link":
        planted.symlink_to("thesis")
    else:
        os.link(tmp_path / "thesis", planted)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "out", b"mine")
    assert (tmp_path / "thesis").read_text() == "text"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127], ids=["ascii", "utf-8"])
def test_names_of_any_length(tmp_path: Path, name: str) -> None:
    replace_file(tmp_path / name, b"text")
    with pytest.raises(OSError, match="File name too long"):
        replace_file(tmp_path / f"{name}xx", b"text")
    assert os.listdir(tmp_path) == [name]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(pipe, b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nobody reads"):
        replace_file(tmp_path / "pipe", b"text")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a pipe to another user")
def test_a_pipe_of_another_user_is_refused_unless_the_folder_is_theirs(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    os.chown(pipe, 65534, 65534)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="another user"):
        replace_file(pipe, b"secret")
    assert write_fault(pipe) == "it is a pipe or a device of another user; choose another place"
    assert os.read(reader, 100) == b""
    os.chown(tmp_path, 65534, 65534)
    assert write_fault(pipe) == ""
    replace_file(pipe, b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)


def test_an_open_file_named_by_proc_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        inode = os.fstat(file.fileno()).st_ino
        replace_file(tmp_path / "link", b"text")
    assert (tmp_path / "out").read_bytes() == b"text"
    assert (tmp_path / "out").stat().st_ino == inode


def test_a_link_is_kept_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("other")
    (tmp_path / "other").symlink_to(tmp_path / "folder" / "file")
    replace_file(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"text"
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "other"]


def test_faults_that_can_be_seen_before(tmp_path: Path) -> None:
    assert write_fault(tmp_path / "new") == ""
    assert write_fault("/dev/stdout") == ""
    assert write_fault(tmp_path) == "it is a folder; give the name of a file"
    assert write_fault(tmp_path / "none" / "x") == f"there is no folder {tmp_path / 'none'}; create it first"
    assert os.listdir(tmp_path) == []


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        replace_file(tmp_path / "a", b"text")
    assert "Too many levels of symbolic links" in write_fault(tmp_path / "a")


def test_links_and_pipes_are_replaced_where_they_are_not_to_be_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "circle", "pipe"):
        replace_file(tmp_path / name, b"text", follow=False)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == b"text"
    assert (tmp_path / "mine").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_is_refused_unless_the_folder_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"old")
    (tmp_path / "planted").symlink_to("mine")
    (tmp_path / "link").symlink_to("planted")
    os.lchown(tmp_path / "planted", 65534, 65534)
    for name in ("planted", "link"):
        with pytest.raises(OSError, match=r"link.*another user"):
            replace_file(tmp_path / name, b"text")
        assert write_fault(tmp_path / name) == "it is a link that belongs to another user; choose another place"
    assert (tmp_path / "mine").read_bytes() == b"old"
    os.chown(tmp_path, 65534, 65534)
    replace_file(tmp_path / "link", b"text")
    assert (tmp_path / "mine").read_bytes() == b"text"
