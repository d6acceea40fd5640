"""Output: what the instances write, in whole lines, each with its tag ``[1,<rank>]<stdout>:``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from time import monotonic

__all__ = ["LAST_LINES", "LONGEST_LINE", "STDERR", "STDOUT", "STREAMS", "Output", "Tagger", "tag"]

STDOUT, STDERR = 1, 2
STREAMS = {STDOUT: "stdout", STDERR: "stderr"}

#: Bytes kept of a line that has not ended; a longer one is shown in pieces.
LONGEST_LINE = 16 << 20

#: Seconds between two states of a progress bar that are shown while it runs.
_LIVE_SECONDS = 1.0

#: Bytes of an instance's stderr that are kept for the message about its failure, and lines that are told of it.
_KEPT, LAST_LINES = 1 << 14, 20

#: Lines of others within or behind an instance's last ones that make these worth repeating.
_FAR = 10


def tag(rank: int, stream: int) -> bytes:
    return f"[1,{rank}]<{STREAMS[stream]}>:".encode()


class Tagger:
    """Makes tagged lines of the pieces in which a stream arrives; bytes are passed through as they are.

    Of a line that rewrites itself with carriage returns, as progress bars do, the last state is kept. Somebody who
    watches (``live``) is shown the state of the moment, once in ``_LIVE_SECONDS``, as a line of its own.
    """

    def __init__(self, tag: bytes, *, live: bool = False) -> None:
        self._tag = tag
        self._rest = bytearray()
        self._live = live
        self._shown_at = -_LIVE_SECONDS

    def feed(self, data: bytes, now: float = 0.0) -> bytes:
        """The lines that ``data`` completes; ``now`` is in seconds."""
        end = data.rfind(b"\n") + 1
        if not end:
            return self._unfinished(data, now)
        block = bytes(self._rest) + data[: end - 1]
        self._rest = bytearray(data[end:])
        return self._tagged(block)

    def finish(self) -> bytes:
        """The last line, if it has no end."""
        block = bytes(self._rest)
        self._rest.clear()
        return self._tagged(block) if block else b""

    def _unfinished(self, data: bytes, now: float) -> bytes:
        rewritten = b"\r" in data or self._rest.endswith(b"\r")
        self._rest += data
        if rewritten:
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

    Each takes the lines and a call to make once they are written. Somebody watches the streams in ``live``. ``mixed``
    says that both lead to the same place.
    """

    def __init__(
        self,
        num_instances: int,
        *,
        only: int | None,
        stdout: Callable[[bytes, Callable[[], None]], None],
        stderr: Callable[[bytes, Callable[[], None]], None],
        live: Container[int] = (),
        mixed: bool = True,
    ) -> None:
        keys = [(rank, stream) for rank in range(num_instances) for stream in STREAMS]
        self._taggers = {key: Tagger(tag(*key), live=key[1] in live) for key in keys}
        self._only = only
        self._to = {STDOUT: stdout, STDERR: stderr}
        self._mixed = mixed
        self._kept = [b""] * num_instances
        self._lines = 0  # where stderr leads
        self._own_lines: list[deque[int]] = [deque(maxlen=LAST_LINES) for _ in range(num_instances)]

    def write(self, rank: int, stream: int, data: bytes, done: Callable[[], None]) -> None:
        """Take what an instance wrote; ``done`` is called when it need not be counted any more."""
        if stream == STDERR:
            self._kept[rank] = (self._kept[rank] + data)[-_KEPT:]
        self._show(rank, stream, self._taggers[rank, stream].feed(data, monotonic()), done)

    def finish(self, rank: int) -> None:
        """Show the last lines of an instance that has ended, also where they have no newline."""
        for stream in STREAMS:
            self._show(rank, stream, self._taggers[rank, stream].finish(), lambda: None)

    def last_lines(self, rank: int) -> list[bytes]:
        """The last lines of an instance's stderr, unless they are what was shown last."""
        own = self._own_lines[rank]
        if own and self._lines - own[0] - len(own) <= _FAR:
            return []
        lines = self._kept[rank].rstrip().split(b"\n")[-LAST_LINES:]
        return [_last_state(line) for line in lines if line]

    def kept(self, rank: int) -> bytes:
        """The end of what an instance has written to stderr."""
        return self._kept[rank]

    def _show(self, rank: int, stream: int, lines: bytes, done: Callable[[], None]) -> None:
        if not lines or self._only not in (None, rank):
            done()
            return
        count = lines.count(b"\n")
        if stream == STDERR or self._mixed:
            self._lines += count
        if stream == STDERR:
            self._own_lines[rank].extend(range(self._lines - min(count, LAST_LINES), self._lines))
        self._to[stream](lines, done)
