"""Output: what the instances write, in whole lines, each with its tag ``[1,<rank>]<stdout>:``."""

from __future__ import annotations

from collections.abc import Callable, Container
from time import monotonic

__all__ = ["LONGEST_LINE", "STDERR", "STDOUT", "Output", "Tagger"]

STDOUT, STDERR = 1, 2
_NAMES = {STDOUT: b"stdout", STDERR: b"stderr"}

#: Bytes kept of a line that has not ended; a longer one is shown in pieces.
LONGEST_LINE = 1 << 20

#: Seconds between two states of a progress bar that are shown while it runs.
_LIVE_SECONDS = 1.0

#: Bytes of an instance's stderr that are kept for the message about its failure.
_KEPT = 1 << 14

#: Lines of others after which an instance's own last lines are worth repeating.
_FAR = 10


class Tagger:
    """Makes tagged lines of the pieces in which a stream arrives; bytes are passed through as they are.

    Of a line that rewrites itself with carriage returns, as progress bars do, the last state is kept. Somebody who
    watches (``live``) is shown the state of the moment, once in ``_LIVE_SECONDS``, as a line of its own.
    """

    def __init__(self, rank: int, stream: int, *, live: bool = False) -> None:
        self._tag = b"[1,%d]<%s>:" % (rank, _NAMES[stream])
        self._rest = bytearray()
        self._live = live
        self._shown_at = -_LIVE_SECONDS

    def feed(self, data: bytes, now: float = 0.0) -> bytes:
        """The lines that ``data`` completes; ``now`` is in seconds."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            return self._unfinished(now)
        block = bytes(self._rest) + data[: end - 1]
        self._rest = bytearray(data[end:])
        return self._tagged(block)

    def finish(self) -> bytes:
        """The last line, if it has no end."""
        block = bytes(self._rest)
        self._rest.clear()
        return self._tagged(block) if block else b""

    def _unfinished(self, now: float) -> bytes:
        if b"\r" in self._rest:
            self._rest = bytearray(_last_state(self._rest))
            if self._live and now - self._shown_at >= _LIVE_SECONDS:
                self._shown_at = now
                return self._tagged(bytes(self._rest.rstrip(b"\r")))
        return self.finish() if len(self._rest) > LONGEST_LINE else b""

    def _tagged(self, block: bytes) -> bytes:
        if b"\r" in block:
            block = b"\n".join(_last_state(line) for line in block.split(b"\n"))
        return self._tag + block.replace(b"\n", b"\n" + self._tag) + b"\n"


def _last_state(line: bytes | bytearray) -> bytes:
    """What a line shows in the end; a carriage return at its very end stays."""
    body = line.rstrip(b"\r")
    return bytes(line[body.rfind(b"\r") + 1 :])


class Output:
    """Routes the streams of all instances to ``stdout`` and ``stderr``, which take whole lines.

    Each takes the lines and a call to make once they are written. Somebody watches the streams in ``live``.
    """

    def __init__(
        self,
        num_instances: int,
        *,
        only: int | None,
        stdout: Callable[[bytes, Callable[[], None]], None],
        stderr: Callable[[bytes, Callable[[], None]], None],
        live: Container[int] = (),
    ) -> None:
        keys = [(rank, stream) for rank in range(num_instances) for stream in _NAMES]
        self._taggers = {key: Tagger(*key, live=key[1] in live) for key in keys}
        self._only = only
        self._to = {STDOUT: stdout, STDERR: stderr}
        self._kept = [b""] * num_instances
        self._lines = 0
        self._last_line = [0] * num_instances

    def write(self, rank: int, stream: int, data: bytes, done: Callable[[], None]) -> None:
        """Take what an instance wrote; ``done`` is called when it need not be counted any more."""
        if stream == STDERR:
            self._kept[rank] = (self._kept[rank] + data)[-_KEPT:]
        self._show(rank, stream, self._taggers[rank, stream].feed(data, monotonic()), done)

    def finish(self, rank: int) -> None:
        """Show the last lines of an instance that has ended, also where they have no newline."""
        for stream in _NAMES:
            self._show(rank, stream, self._taggers[rank, stream].finish(), lambda: None)

    def last_lines(self, rank: int, count: int) -> list[bytes]:
        """The last lines of an instance's stderr, unless they were shown just now."""
        shown = self._only in (None, rank)
        if shown and self._lines - self._last_line[rank] <= _FAR:
            return []
        lines = self._kept[rank].rstrip().split(b"\n")[-count:]
        return [_last_state(line) for line in lines if line]

    def kept(self, rank: int) -> bytes:
        """The end of what an instance has written to stderr."""
        return self._kept[rank]

    def _show(self, rank: int, stream: int, lines: bytes, done: Callable[[], None]) -> None:
        if not lines or self._only not in (None, rank):
            done()
            return
        self._lines += lines.count(b"\n")
        if stream == STDERR:
            self._last_line[rank] = self._lines
        self._to[stream](lines, done)
