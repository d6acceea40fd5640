"""Files: the log folder, with all that the instances write: a file per instance and stream, for the user's eyes."""

from __future__ import annotations

import os
from collections.abc import Callable

from poprun_py.errors import UsageError
from poprun_py.output.tagged_output import STREAMS, Tagger
from poprun_py.output.writer_thread import Sink

__all__ = ["Files"]


class Files:
    """``DIR/instance-0.stdout`` and so on; of the second start on ``DIR/instance-0.restart-1.stdout``.

    Lines have no tags; of a progress bar the last state is kept. Raises UsageError where a file cannot be made.
    """

    def __init__(self, folder: str, num_instances: int, *, restart: int, nudge: Callable[[], None]) -> None:
        self.folder = folder
        self._infix = f".restart-{restart}" if restart else ""
        self._sink = Sink(-1, nudge)
        self._descriptors: dict[tuple[int, int], int] = {}
        self._lines: dict[tuple[int, int], Tagger] = {}
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            for rank in range(num_instances):
                for stream in STREAMS:
                    self._open(rank, stream)
        except OSError as error:
            self.close()
            where = f"--log-dir {folder}: {error.filename or folder}"
            raise UsageError([f"{where} cannot be written: {error.strerror}; name another folder"]) from None

    def path(self, rank: int, stream: int) -> str:
        return os.path.join(self.folder, f"instance-{rank}{self._infix}.{STREAMS[stream]}")

    def start(self) -> None:
        """Begin to write."""
        self._sink.start()

    def write(self, rank: int, stream: int, data: bytes, done: Callable[[], None]) -> None:
        """Queue what ``data`` completes; ``done`` is among what ``written`` returns afterwards."""
        self._sink.put(self._lines[rank, stream].feed(data), done, to=self._descriptors[rank, stream])

    def finish(self, rank: int) -> None:
        """Write the last lines of an instance, also where they have no end."""
        for stream in STREAMS:
            self._sink.put(self._lines[rank, stream].finish(), to=self._descriptors[rank, stream])

    def written(self) -> list[Callable[[], None]]:
        return self._sink.written()

    @property
    def error(self) -> str:
        """Why not everything could be written, if so."""
        return self._sink.error

    def close(self) -> None:
        """Write what is left."""
        self._sink.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, rank: int, stream: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path(rank, stream), flags, 0o600)
        self._descriptors[rank, stream] = descriptor
        os.fchmod(descriptor, 0o600)  # of an older file too
        self._lines[rank, stream] = Tagger(b"")
