"""Checkpoint folder: the checkpoints of one job, one directory each, and which of them are complete.

    runs/digits/
      latest                              the name of the newest complete checkpoint, and the CRC-32 of that name
      step-000000120/
        checkpoint.json                   the manifest: see ``manifest``
        instance-0-of-2.safetensors       the part of instance 0
        instance-1-of-2.safetensors
      .step-000000130.part/               one that is being written, or was when the job was killed
      .step-000000120.replaced/           one that another of the same step is about to replace

A directory gets its final name by one rename, after all files in it have reached the disk. Only complete checkpoints
are ever removed; damaged ones, and files of other programs, are kept.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from filelock import FileLock, Timeout

from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.checkpoint.manifest import MOST_BYTES, Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import checksum
from popdist_py.files.atomic_write import replace_file, sync_folder
from popdist_py.files.bounded_read import read_file

_LATEST, _MANIFEST, _LOCK = "latest", "checkpoint.json", ".lock"
_NAME = re.compile(r"step-(\d{9,})")
_LEFT = re.compile(r"\.step-\d{9,}(\.old)?\.part")
_LATEST_LEFT = re.compile(r"\.latest\.[0-9a-f]{16}\.tmp")
_REPLACED = re.compile(r"\.(step-\d{9,})\.replaced")
#: Bytes of the file ``latest`` that are read.
_MOST_NAME_BYTES = 4096


class CheckpointError(EmulatorError):
    """A checkpoint could not be written or read."""


class Folder:
    """The directory of the checkpoints of a job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Held as long as the job writes; forked workers of feeds close their copy of it. Only its owner can open it:
        # whoever can read a file can lock it.
        self._lock = FileLock(path / _LOCK, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)

    # Writing

    def open(self) -> None:
        """Create and lock the directory, and remove incomplete checkpoints of killed jobs."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _close_to_others(self.path / _LOCK)
            self._lock.acquire()
        except Timeout:
            raise CheckpointError(
                f"another job writes checkpoints to {self.path}; give each job its own folder"
            ) from None
        except OSError as error:
            raise CheckpointError(
                f"checkpoints cannot be written to {self.path}: {error.strerror}; choose another folder"
            ) from error
        for left in self.path.glob(".step-*"):
            if _LEFT.fullmatch(left.name):
                _discard(left)
            elif match := _REPLACED.fullmatch(left.name):
                self._put_back(left, self.path / match[1])
        for left in self.path.glob(f".{_LATEST}.*.tmp"):
            if _LATEST_LEFT.fullmatch(left.name):
                with suppress(OSError):  # it is a folder, or of another user
                    left.unlink()

    def close(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def begin(self, step: int) -> Path:
        """Return a new directory for the parts of a checkpoint."""
        part = self.part(step)
        _discard(part)
        part.mkdir()
        return part

    def part(self, step: int) -> Path:
        return self.path / f".{_name(step)}.part"

    def abandon(self, step: int) -> None:
        _discard(self.part(step))

    def commit(self, manifest: Manifest, keep: int) -> None:
        """Make the parts the latest checkpoint; keep ``keep`` - 1 of those that led to it."""
        part, final = self.part(manifest.step), self.path / _name(manifest.step)
        replace_file(part / _MANIFEST, manifest.encoded(), sync=True, follow=False)
        self._set_in_place(part, final)
        sync_folder(self.path)
        try:
            replace_file(self.path / _LATEST, _pointer(final.name), sync=True, follow=False)
        except IsADirectoryError:
            raise OSError(f"{self.path / _LATEST} is a folder where a file belongs; move it away") from None
        before = [name for name in self.names() if _step(name) < manifest.step and self._is_complete(name)]
        for name in before[max(0, keep - 1) :]:
            self._remove(name)

    def _set_in_place(self, part: Path, final: Path) -> None:
        """Rename ``part`` to ``final``; an earlier checkpoint of the step keeps one of two names until then."""
        if not final.exists():
            part.rename(final)
            return
        replaced = self.path / f".{final.name}.replaced"
        _discard(replaced)
        final.rename(replaced)
        try:
            part.rename(final)
        except OSError:
            self._put_back(replaced, final)
            raise
        sync_folder(self.path)
        _discard(replaced)

    def _put_back(self, replaced: Path, final: Path) -> None:
        """Undo or complete a replacement that a kill or a failure interrupted."""
        try:
            replaced.rename(final)
        except OSError:  # the new one was renamed already
            _discard(replaced)

    def _is_complete(self, name: str) -> bool:
        """Whether a checkpoint has a valid manifest and files of the right sizes; their content is not read."""
        try:
            files = self.manifest(name).files
            return all((self.path / name / file).stat().st_size == size for file, (size, _) in files.items())
        except (OSError, ValueError):
            return False

    def _remove(self, name: str) -> None:
        """Rename before deleting: a partly deleted directory must not look like a checkpoint."""
        doomed = self.path / f".{name}.old.part"
        _discard(doomed)
        (self.path / name).rename(doomed)
        _discard(doomed)

    # Reading

    def names(self) -> list[str]:
        """Return the checkpoints: the one that ``latest`` names, those before it, and those after it, newest first.

        Those after it are of another run, or of a job that was killed before it had changed ``latest``.
        """
        names = [path.name for path in self.path.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir()]
        latest, _ = self.latest()
        last = _step(latest) if latest else max(map(_step, names), default=0)
        return sorted(names, key=lambda name: (name != latest, _step(name) > last, -_step(name)))

    def latest(self) -> tuple[str, str]:
        """Return the name in ``latest`` and ''; or '' and the reason why there is none.

        A name without a checksum is used too: somebody may have chosen an older checkpoint by hand.
        """
        try:
            data = read_file(self.path / _LATEST, _MOST_NAME_BYTES)
            name = data.split()[0].decode() if data.strip() else ""
        except OSError as error:
            return "", str(error.strerror or error)
        except ValueError:
            name = ""
        if _NAME.fullmatch(name) and data.split() in ([name.encode()], _pointer(name).split()):
            return name, ""
        return "", "it is damaged"

    def verified(self, names: Sequence[str]) -> Iterator[tuple[str, Manifest | str]]:
        """Yield each of ``names`` with its manifest, or with the reason why it is not valid."""
        for name in names:
            try:
                yield name, self._verified(name)
            except OSError as error:
                yield name, f"{os.path.basename(error.filename or name)}: {error.strerror or error}"
            except ValueError as error:
                yield name, str(error)

    def manifest(self, name: str) -> Manifest:
        """Read the manifest of a checkpoint; raise OSError or ValueError if there is no valid one."""
        manifest = Manifest.decoded(read_file(self.path / name / _MANIFEST, MOST_BYTES))
        if _name(manifest.step) != name:
            raise ValueError(f"{_MANIFEST} is of step {manifest.step}")
        return manifest

    def _verified(self, name: str) -> Manifest:
        manifest = self.manifest(name)
        for file, (size, expected) in manifest.files.items():
            path = self.path / name / file
            nbytes = path.stat().st_size if path.is_file() else 0
            if nbytes <= size:
                nbytes, digest = checksum(path)
            if nbytes != size:
                raise ValueError(f"{file} has {nbytes} bytes instead of {size}")
            if digest != expected:
                raise ValueError(f"{file} is damaged: its checksum does not match")
        return manifest


def _close_to_others(path: Path) -> None:
    """Remove all access of others from an existing lock file, if this user owns it."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def _discard(path: Path) -> None:
    """Remove a folder and its content; of a symbolic link, remove only the link."""
    try:
        path.unlink()
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _step(name: str) -> int:
    return int(name.partition("-")[2])


def _pointer(name: str) -> bytes:
    """The content of ``latest``."""
    return f"{name} {crc32(name.encode()):08x}\n".encode()


def _name(step: int) -> str:
    return f"step-{step:09}"
