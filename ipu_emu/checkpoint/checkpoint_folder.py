"""Checkpoint folder: the checkpoints of one job, one directory each, and which of them are complete.

    runs/digits/
      latest                              the name of the newest complete checkpoint
      step-000000120/
        checkpoint.json                   step, state of the program, and the SHA-256 of each data file
        instance-0-of-2.safetensors       the part of instance 0
        instance-1-of-2.safetensors
      .step-000000130.part/               one that is being written, or was when the job was killed

A directory gets its final name by one rename, after all files in it have reached the disk.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ipu_emu.checkpoint.safetensors_file import checksum
from ipu_emu.errors import EmulatorError
from popdist_py.atomic_write import replace_file

__all__ = ["CheckpointError", "Folder", "Manifest"]

_FORMAT = 1
_LATEST, _MANIFEST, _LOCK = "latest", "checkpoint.json", ".lock"


class CheckpointError(EmulatorError):
    """A checkpoint could not be written or read."""


@dataclass(frozen=True)
class Manifest:
    """The content of ``checkpoint.json``: ``files`` maps names to (bytes, SHA-256)."""

    step: int
    state: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]
    groups: Mapping[str, int] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the content of the file."""
        content = {"format": _FORMAT, "step": self.step, "state": self.state, "groups": self.groups}
        return json.dumps(content | {"files": self.files}, indent=1).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """Return the manifest in ``data``; raise ValueError if it is none."""
        content = json.loads(data)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"it is not a checkpoint of format {_FORMAT}")
        try:
            files = {name: (int(size), str(sha)) for name, (size, sha) in content["files"].items()}
            return cls(content["step"], content["state"], files, content["groups"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{_MANIFEST} lacks or has a wrong {error}") from error


class Folder:
    """The directory of the checkpoints of a job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Held as long as the job writes; forked workers of feeds close their copy of it.
        self._lock = FileLock(path / _LOCK, timeout=0, thread_local=False, fallback_to_soft=False)

    # Writing

    def open(self) -> None:
        """Create and lock the directory, and remove what a killed job left incomplete."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise CheckpointError(
                f"another job writes checkpoints to {self.path}; give each job its own folder"
            ) from None
        except OSError as error:
            raise CheckpointError(
                f"checkpoints cannot be written to {self.path}: {error.strerror}; choose another folder"
            ) from error
        for left in self.path.glob(".step-*.part"):
            shutil.rmtree(left, ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def begin(self, step: int) -> Path:
        """Return a new directory for the parts of a checkpoint."""
        part = self.part(step)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        return part

    def part(self, step: int) -> Path:
        return self.path / f".{_name(step)}.part"

    def abandon(self, step: int) -> None:
        shutil.rmtree(self.part(step), ignore_errors=True)

    def commit(self, manifest: Manifest, keep: int) -> None:
        """Make the parts the latest checkpoint; keep ``keep`` - 1 older ones."""
        part, final = self.part(manifest.step), self.path / _name(manifest.step)
        replace_file(part / _MANIFEST, manifest.encoded(), sync=True)
        if final.exists():  # from an earlier run that this one did not resume from
            self._remove(final.name)
        part.rename(final)
        _sync(self.path)
        replace_file(self.path / _LATEST, final.name.encode() + b"\n", sync=True)
        newest_first = [name for name in self.names() if name != final.name]
        for name in newest_first[max(0, keep - 1) :]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Rename before deleting: a partly deleted directory must not look like a checkpoint."""
        doomed = self.path / f".{name}.old.part"
        shutil.rmtree(doomed, ignore_errors=True)
        (self.path / name).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    # Reading

    def names(self) -> list[str]:
        """Return the checkpoints, the one that ``latest`` names first, then the newest first."""
        found = sorted((path.name for path in self.path.glob("step-*") if path.is_dir()), reverse=True)
        try:
            latest = (self.path / _LATEST).read_text().strip()
        except OSError:
            return found
        return sorted(found, key=lambda name: name != latest)

    def verified(self, names: Sequence[str]) -> Iterator[tuple[str, Manifest | str]]:
        """Yield each of ``names`` with its manifest, or with the reason why it is not valid."""
        for name in names:
            try:
                yield name, self._verified(name)
            except (OSError, ValueError) as error:
                yield name, str(error)

    def manifest(self, name: str) -> Manifest:
        return Manifest.decoded((self.path / name / _MANIFEST).read_bytes())

    def _verified(self, name: str) -> Manifest:
        manifest = self.manifest(name)
        for file, (size, expected) in manifest.files.items():
            path = self.path / name / file
            if path.stat().st_size != size:
                raise ValueError(f"{file} has {path.stat().st_size} bytes instead of {size}")
            if checksum(path) != expected:
                raise ValueError(f"{file} is damaged: its checksum does not match")
        return manifest


def _name(step: int) -> str:
    return f"step-{step:09}"


def _sync(folder: Path) -> None:
    """Bring the names in ``folder`` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
