"""Background writer: writes one instance's part of a checkpoint to the disk in its own thread.

    the program's thread          save: copy the values ──> go on with the next step
    this thread                                        └──> write, hash, sync; instance 0 then waits for the parts of
                                                            the others and commits the checkpoint

Instances exchange their parts through the file system, not over MPI, which only one thread of a process should use.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ipu_emu.hostio.checkpoint.checkpoint_folder import Folder
from ipu_emu.hostio.checkpoint.manifest import Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import write
from popdist_py import trace
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.bounded_read import read_file

#: Niceness of the thread: training comes first.
_NICE = 10
_POLL_SECONDS = 0.01
_MOST_NOTE_BYTES = 4096
#: Seconds that the thread writes, then pauses, to disturb training less, unless the program waits for it.
_WRITE_SECONDS, _PAUSE_SECONDS = 0.005, 0.015


class Writer:
    """Writes parts, one at a time; on instance 0 it also commits checkpoints."""

    def __init__(self, folder: Folder, instance: int, instances: int, *, keep: int, timeout: float) -> None:
        self._folder, self._instance, self._instances = folder, instance, instances
        self._keep, self._timeout = keep, timeout
        self._pool = ThreadPoolExecutor(1, "checkpoint", initializer=_be_nice)
        self._part: Future[str] | None = None
        self._outcome: Future[str] | None = None
        self._cancelled = threading.Event()
        self._waited_for = threading.Event()

    def begin(self, manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Start writing ``arrays``, which must not change until ``part_written`` returns."""
        self._cancelled.clear()
        self._waited_for.clear()
        self._part = self._pool.submit(self._write_part, manifest.step, arrays)
        if self._instance == 0:
            self._outcome = self._pool.submit(self._commit, manifest)

    @property
    def busy(self) -> bool:
        return any(work is not None and not work.done() for work in (self._part, self._outcome))

    def part_written(self) -> str:
        """Wait for this instance's part; return an error message, or ''."""
        self._waited_for.set()
        part, self._part = self._part, None
        return part.result() if part else ""

    def outcome(self) -> str:
        """Wait, on instance 0, until the checkpoint is committed; return an error message, or ''."""
        outcome, self._outcome = self._outcome, None
        return outcome.result() if outcome else ""

    def cancel(self) -> None:
        """Stop waiting for the parts of other instances, one of which failed."""
        self._cancelled.set()

    def close(self) -> None:
        """Stop the thread."""
        self._cancelled.set()
        self._waited_for.set()
        self._pool.shutdown()

    @trace.span("write a checkpoint", trace.Category.CHECKPOINT)
    def _write_part(self, step: int, arrays: Mapping[str, NDArray[Any]]) -> str:
        folder = self._folder.part(step)
        path = folder / _file(self._instance, self._instances)
        try:
            digest = write(path, arrays, pause=self._pauses())
            note = json.dumps([path.stat().st_size, digest]).encode()
            replace_file(_note(path), note, follow=False)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            unseen = isinstance(error, FileNotFoundError) and not folder.exists()
            more = f"; {self._folder.path} must be one folder that all hosts share" if unseen else ""
            return f"{path}: {error.strerror or error}{more}"
        return ""

    def _pauses(self) -> Callable[[], None]:
        """Return the function to call between pieces."""
        begin = time.monotonic()

        def pause() -> None:
            nonlocal begin
            if time.monotonic() - begin > _WRITE_SECONDS:
                self._waited_for.wait(_PAUSE_SECONDS)
                begin = time.monotonic()

        return pause

    def _commit(self, manifest: Manifest) -> str:
        folder = self._folder.part(manifest.step)
        paths = [folder / _file(i, self._instances) for i in range(self._instances)]
        try:
            files = {path.name: self._written(path) for path in paths}
            for path in paths:
                _note(path).unlink()
            self._folder.commit(replace(manifest, files=files), self._keep)
        except OSError as error:
            self._folder.abandon(manifest.step)
            return f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except ValueError as error:
            self._folder.abandon(manifest.step)
            return f"the size and checksum of a part cannot be read: {error}"
        return ""

    def _written(self, path: Path) -> tuple[int, str]:
        """Wait for a part; return its size and checksum."""
        deadline = time.monotonic() + self._timeout
        while not _note(path).exists():
            if self._cancelled.is_set():
                raise OSError("cancelled, because another part could not be written")
            if time.monotonic() > deadline:
                raise OSError(
                    f"{path} did not appear within {self._timeout:g} s; all instances must save to one folder that "
                    "all hosts share"
                )
            time.sleep(_POLL_SECONDS)
        size, digest = json.loads(read_file(_note(path), _MOST_NOTE_BYTES))
        return size, digest


def _file(instance: int, instances: int) -> str:
    return f"instance-{instance}-of-{instances}.safetensors"


def _note(path: Path) -> Path:
    """Return the path of the note next to a complete part, with its size and checksum."""
    return path.with_suffix(".written")


def _be_nice() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
