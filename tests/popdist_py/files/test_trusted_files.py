"""Trusted files: files that other users may have written are distinguished from those of this user alone."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from popdist_py.files import trusted_files
from popdist_py.files.trusted_files import UntrustedError, file_fault, folder_fault, read_trusted

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a folder with a file."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for path in (inner.parent, inner):
        path.chmod(0o755)
    (inner / "code").write_bytes(b"code")
    return inner


def test_a_folder_of_ones_own_has_no_fault(folder: Path) -> None:
    (folder.parent / "link").symlink_to("inner")
    os.chmod(folder.parent, 0o1777)
    for path in (folder, f"{folder}/", folder / ".." / "inner", folder.parent / "link"):
        assert folder_fault(path) == ""
    assert read_trusted(folder / "code") == b"code"
    assert file_fault(folder / "code") == file_fault(folder / "none") == ""


@pytest.mark.parametrize(("mode", "shown"), [(0o777, "777"), (0o757, "757"), (0o1777, "1777")])
def test_others_may_write_to_the_folder(mode: int, shown: str, folder: Path) -> None:
    os.chmod(folder, mode)
    assert folder_fault(folder) == f"other users may write to {folder} (mode {shown})"


def test_others_may_put_another_folder_in_its_place(folder: Path) -> None:
    os.chmod(folder.parent, 0o777)
    assert folder_fault(folder) == f"other users may write to {folder.parent} (mode 777)"
    os.chmod(folder.parent, 0o755)
    (folder.parent / "open").mkdir()
    (folder.parent / "open").chmod(0o777)
    (folder.parent / "open" / "link").symlink_to(folder)
    assert "open (mode 777)" in folder_fault(folder.parent / "open" / "link")
    (folder.parent / "circle").symlink_to("circle")
    assert "Too many levels" in folder_fault(folder.parent / "circle")
    assert "No such file" in folder_fault(folder.parent / "none")


def test_others_may_write_to_the_file(folder: Path) -> None:
    os.chmod(folder / "code", 0o666)
    fault = f"other users may write to {folder / 'code'} (mode 666)"
    assert file_fault(folder / "code") == fault
    with pytest.raises(UntrustedError) as refused:
        read_trusted(folder / "code")
    assert str(refused.value) == fault


def test_a_file_that_is_too_long_is_refused(folder: Path) -> None:
    os.truncate(folder / "code", 40 << 30)
    with pytest.raises(OSError, match="more than the 17,179,869,184 bytes"):
        read_trusted(folder / "code")


def test_a_link_or_a_pipe_is_no_file_to_load(folder: Path) -> None:
    (folder / "link").symlink_to("code")
    os.mkfifo(folder / "pipe")
    for name in ("link", "pipe", "none"):
        with pytest.raises(OSError):
            read_trusted(folder / name)


def give(path: Path, *, group: int = -1) -> None:
    os.chown(path, -1 if group >= 0 else NOBODY, group, follow_symlinks=False)


@needs_root
def test_files_of_other_users_are_not_trusted(folder: Path) -> None:
    give(folder / "code")
    assert file_fault(folder / "code").endswith(f"code belongs to user {NOBODY}, not to this user (0)")
    with pytest.raises(UntrustedError, match="belongs to user"):
        read_trusted(folder / "code")
    (folder.parent / "link").symlink_to("inner")
    for path in (folder, folder.parent, folder.parent / "link"):
        give(path)
        assert "belongs to user" in folder_fault(folder.parent / "link")
        os.chown(path, 0, -1, follow_symlinks=False)
    assert folder_fault(folder.parent / "link") == ""


@needs_root
def test_a_file_of_another_user_that_cannot_be_read_is_named_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = NOBODY - 1
    (folder / "mine").write_bytes(b"code")
    for path in (folder, folder / "mine"):
        os.chown(path, user, -1)
    (folder / "mine").chmod(0)
    give(folder / "code")
    (folder / "code").chmod(0o600)
    monkeypatch.chdir(folder)
    os.seteuid(user)
    trusted_files.plain_trust.cache_clear()  # it has cached the previous user
    try:
        with pytest.raises(UntrustedError, match=f"^code belongs to user {NOBODY}, not to this user"):
            read_trusted("code")
        with pytest.raises(PermissionError, match="Permission denied"):
            read_trusted("mine")
    finally:
        os.seteuid(0)
        trusted_files.plain_trust.cache_clear()


@needs_root
@pytest.mark.parametrize(("group", "faulty"), [(0, False), (100, True)], ids=["one's own", "shared"])
def test_a_group_may_write_if_it_is_that_of_the_user_alone(group: int, faulty: bool, folder: Path) -> None:
    os.chmod(folder, 0o775)
    give(folder, group=group)
    assert bool(folder_fault(folder)) == faulty


def let_another_write(path: Path) -> None:
    """Give the file an access control list with a named user who may write; the group may only read."""

    def entry(tag: int, permissions: int, user: int = 0xFFFFFFFF) -> bytes:
        return struct.pack("<HHI", tag, permissions, user)

    access = entry(1, 6) + entry(2, 6, NOBODY) + entry(4, 4) + entry(0x10, 6) + entry(0x20, 4)
    try:
        os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + access)
    except OSError as error:
        pytest.skip(f"the file system has no access control lists: {error.strerror}")


@pytest.mark.parametrize("name", ["code", "."])
def test_a_user_named_in_an_access_control_list_may_write(name: str, folder: Path) -> None:
    let_another_write(folder / name)
    if name == "code":
        with pytest.raises(UntrustedError, match="with an access control list"):
            read_trusted(folder / name)
    else:
        assert folder_fault(folder) == f"other users may write to {folder} (mode 664 with an access control list)"


def test_a_source_does_not_make_up_for_an_access_control_list(folder: Path) -> None:
    source = folder.parent / "source.py"
    source.touch()
    source.chmod(0o664)
    let_another_write(folder / "code")
    assert "with an access control list" in file_fault(folder / "code", source=source)


@needs_root
def test_a_folder_next_to_a_source_is_trusted_with_those_who_may_write_to_the_source(folder: Path) -> None:
    source = folder.parent / "source.py"
    source.touch()
    source.chmod(0o666)
    changes: list[Callable[[], None]] = [lambda: folder.chmod(0o777), lambda: give(folder)]
    for change in changes:
        change()
        assert folder_fault(folder, source=source)[:1] == ("" if change is changes[0] else str(folder)[0])
        assert folder_fault(folder, source=folder / "code") != ""
    give(source)
    assert folder_fault(folder, source=source) == ""
    give(folder / "code")
    assert file_fault(folder / "code", source=source) == ""


def test_a_file_without_the_magic_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "code").write_bytes(b"MAGIC and more")
    assert read_trusted(folder / "code", b"MAGIC") == b"MAGIC and more"
    monkeypatch.setattr("popdist_py.files.trusted_files.read_descriptor", None)  # nothing may be read whole
    os.truncate(folder / "code", 0)
    os.truncate(folder / "code", 1 << 38)
    assert read_trusted(folder / "code", b"MAGIC") == b"\0\0\0\0\0"
    os.truncate(folder / "code", 2)
    assert read_trusted(folder / "code", b"MAGIC") == b"\0\0"
