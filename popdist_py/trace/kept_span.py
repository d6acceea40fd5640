"""KeptSpan: a span that is used again and again, without a look-up of its memory each time.

A record is prepared with its key before it runs, as those of sequences are, so that entering a span writes nothing
but its begin, which makes it valid, and leaving it nothing but its end. Both are plain functions in slots, which
Python calls sooner than methods.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import cast

from popdist_py.trace.recorder import Recorder, Span
from popdist_py.trace.records import END, RECORD_WORDS, WORD_FORMAT

__all__ = ["KeptSpan"]

_Enter = Callable[[], None]
_Leave = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]

#: Most records that are prepared at once.
_MOST_RECORDS = 256


class KeptSpan:
    """Records blocks, also several at once: one inside another, or in several threads."""

    __slots__ = ("__enter__", "__exit__", "key", "recorder")

    __enter__: _Enter
    __exit__: _Leave

    def __init__(self, recorder: Recorder, key: int) -> None:
        self.recorder, self.key = recorder, key
        self.__enter__, self.__exit__ = _calls(recorder, key)


def _calls(recorder: Recorder, key: int) -> tuple[_Enter, _Leave]:
    """What to call when a block is entered and left: quick for one at a time of the thread that asks for them."""
    now, this_thread, thread = perf_counter_ns, get_ident, get_ident()
    prepared = struct.pack("qqqq", 0, 0, 0, key)
    words = ends = memoryview(b"")
    places, at, count = cast(Iterator[int], iter(())), 0, 0
    others: dict[int, list[Span]] = {}

    def prepare() -> int:
        nonlocal words, ends, places, count
        count = min(2 * count, _MOST_RECORDS) or 1
        words, found = recorder.reserve(1, count)
        words[found[0] : found[-1] + RECORD_WORDS] = memoryview(prepared * len(found)).cast(WORD_FORMAT)
        ends, places = words[END:], iter(found)
        return next(places)

    def enter() -> None:
        nonlocal at
        if at or thread != this_thread():
            enter_other()
            return
        for at in places:  # sooner than next()
            words[at] = now()
            return
        at = prepare()
        words[at] = now()

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        nonlocal at
        if others and leave_other():
            return
        ends[at] = now()
        at = 0

    def enter_other() -> None:
        other = Span(recorder, key)
        other.__enter__()
        others.setdefault(this_thread(), []).append(other)

    def leave_other() -> bool:
        inside = others.get(this_thread())
        if not inside:
            return False
        inside.pop().__exit__(None, None, None)
        if not inside:
            del others[this_thread()]
        return True

    return enter, leave
