"""Tagged output: the instances' output in whole lines, each with its tag ``[1,<rank>]<stdout>:``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from time import monotonic

from poprun_py.wire.messages import STDERR, STDOUT, STREAMS

#: Bytes that are kept of an unfinished line; a longer line is written in pieces.
LONGEST_LINE = 16 << 20

#: Seconds between two states of a progress bar that are written while it runs.
_LIVE_SECONDS = 1.0

#: Bytes of an instance's stderr that are kept for the message about its failure, and lines that it quotes.
_KEPT, LAST_LINES = 1 << 14, 20

#: An instance's last lines are quoted if more lines than this of other instances came between or after them.
_LINES_IN_VIEW = 10


#: The control sequence that ends a colour; other attributes of the text stay.
_DEFAULT_COLOR = b"\x1b[39m"


def tag(rank: int, stream: int, colors: Sequence[bytes] = ()) -> bytes:
    """Return the tag of an instance's lines, in its own one of ``colors`` (control sequences), if there are any."""
    text = f"[1,{rank}]<{STREAMS[stream]}>:".encode()
    return colors[rank % len(colors)] + text + _DEFAULT_COLOR if colors else text


class Tagger:
    """Turns the pieces in which a stream arrives into tagged lines; their bytes are unchanged.

    Of a line that is rewritten with carriage returns, as progress bars are, only the last state is kept. If the
    stream is ``live`` (a terminal), the current state is also written every ``_LIVE_SECONDS``, on a line of its own.
    """

    def __init__(self, tag: bytes, *, live: bool = False) -> None:
        self._tag = tag
        self._rest = bytearray()
        self._live = live
        self._shown_at = -_LIVE_SECONDS

    def feed(self, data: bytes, now: float = 0.0) -> bytes:
        """Return the lines that ``data`` completes; ``now`` is in seconds."""
        end = data.rfind(b"\n") + 1
        if not end:
            return self._unfinished(data, now)
        block = bytes(self._rest) + data[: end - 1]
        self._rest = bytearray(data[end:])
        return self._tagged(block)

    def finish(self) -> bytes:
        """Return the last line, if it has no newline."""
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
    """What is visible of a line in the end; carriage returns at its very end stay."""
    body = line.rstrip(b"\r")
    return bytes(line[body.rfind(b"\r") + 1 :])


class TaggedOutput:
    """Routes the streams of all instances to ``stdout`` and ``stderr``.

    Both are called with whole lines, and with a function to call once they are written. ``only``: the one instance
    whose output is shown; ``live``: the streams that are terminals, where the tags of several instances have
    ``colors``; ``mixed``: stdout and stderr are the same file.
    """

    def __init__(
        self,
        num_instances: int,
        *,
        only: int | None,
        stdout: Callable[[bytes, Callable[[], None]], None],
        stderr: Callable[[bytes, Callable[[], None]], None],
        live: Container[int] = (),
        colors: Sequence[bytes] = (),
        mixed: bool = True,
    ) -> None:
        shown = colors if num_instances > 1 and only is None else ()
        self._taggers = {
            (rank, stream): Tagger(tag(rank, stream, shown if stream in live else ()), live=stream in live)
            for rank in range(num_instances)
            for stream in STREAMS
        }
        self._only = only
        self._to = {STDOUT: stdout, STDERR: stderr}
        self._mixed = mixed
        self._kept = [b""] * num_instances
        self._lines = 0  # written to stderr, or to the file that is both
        self._own_lines: list[deque[int]] = [deque(maxlen=LAST_LINES) for _ in range(num_instances)]

    def write(self, rank: int, stream: int, data: bytes, done: Callable[[], None]) -> None:
        """Write what an instance wrote; ``done`` is called when it has been written."""
        if stream == STDERR:
            self._kept[rank] = (self._kept[rank] + data)[-_KEPT:]
        self._show(rank, stream, self._taggers[rank, stream].feed(data, monotonic()), done)

    def finish(self, rank: int) -> None:
        """Write the last lines of an instance that has ended, even without a newline."""
        for stream in STREAMS:
            self._show(rank, stream, self._taggers[rank, stream].finish(), lambda: None)

    def last_lines(self, rank: int) -> list[bytes]:
        """Return the last lines of an instance's stderr, unless they are still in view."""
        own = self._own_lines[rank]
        if own and self._lines - own[0] - len(own) <= _LINES_IN_VIEW:
            return []
        lines = self._kept[rank].rstrip().split(b"\n")[-LAST_LINES:]
        return [_last_state(line) for line in lines if line]

    def stderr_end(self, rank: int) -> bytes:
        """Return the end of what an instance has written to stderr."""
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
