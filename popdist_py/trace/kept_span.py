"""KeptSpan: a span that is recorded repeatedly, without looking up its memory each time.

A record is prepared with its key in advance, like those of sequences, so that entering a span writes only its start,
which makes it valid, and leaving it only its end. Both are plain functions in slots, which Python calls faster than
methods.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import cast

from popdist_py.trace.recorder import Recorder
from popdist_py.trace.records import END, RECORD_WORDS, WORD_FORMAT

_Enter = Callable[[], None]
_Leave = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]

#: The most records that are prepared at once.
_MOST_RECORDS = 512
#: Marks a block whose place is in other memory; the word at this index, in the chunk's head, is unused.
_ASIDE = 1


class KeptSpan:
    """Records blocks, also nested and in several threads; fastest in the thread that created it."""

    __slots__ = ("__enter__", "__exit__", "key", "recorder")

    __enter__: _Enter
    __exit__: _Leave

    def __init__(self, recorder: Recorder, key: int) -> None:
        self.recorder, self.key = recorder, key
        self.__enter__, self.__exit__ = _calls(recorder, key)


class _OfThread(threading.local):
    """The calls of each other thread, created at their first use."""

    _made: tuple[_Enter, _Leave] | None = None

    def calls(self, recorder: Recorder, key: int) -> tuple[_Enter, _Leave]:
        if self._made is None:
            self._made = _calls(recorder, key)
        return self._made


class _Records:
    """Memory for records with one key, prepared for more of them each time."""

    def __init__(self, recorder: Recorder, key: int) -> None:
        self._recorder, self._count = recorder, 0
        self._record = struct.pack("qqqq", 0, 0, 0, key)
        self._prepared = memoryview(b"").cast(WORD_FORMAT)

    def prepare(self) -> tuple[memoryview, memoryview, Iterator[int]]:
        """The words of the memory, those from the first record's end on, and the places of the records."""
        self._count = min(2 * self._count, _MOST_RECORDS) or 1
        words, starts = self._recorder.reserve(1, self._count)
        if len(starts) * RECORD_WORDS != len(self._prepared):
            self._prepared = memoryview(self._record * len(starts)).cast(WORD_FORMAT)
        words[starts[0] : starts[-1] + RECORD_WORDS] = self._prepared
        return words, words[END:], iter(starts)


def _calls(recorder: Recorder, key: int) -> tuple[_Enter, _Leave]:
    """The functions to call when a block is entered and left; for other threads they call separate ones.

    ``at`` is the place of the innermost open block, ``around`` that of the one around it, both 0 without one;
    ``outer`` has the others. Blocks in memory that is full are in ``earlier``, and ``_ASIDE`` stands for all of them.
    """
    now, this_thread, thread = perf_counter_ns, get_ident, get_ident()
    records, others, has_others = _Records(recorder, key), _OfThread(), False
    words = ends = memoryview(b"")
    places, at, around = cast(Iterator[int], iter(())), 0, 0
    outer: list[int] = []
    earlier: list[tuple[memoryview, int]] = []

    def enter() -> None:
        nonlocal at, around, has_others
        if thread != this_thread():
            has_others = True
            others.calls(recorder, key)[0]()
            return
        if at:
            if around:
                outer.append(around)
            around = at
        for at in places:  # faster than next()
            words[at] = now()
            return
        at = prepare()
        words[at] = now()

    def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        nonlocal at, around
        if has_others and thread != this_thread():
            others.calls(recorder, key)[1](kind, error, trace)
            return
        ends[at] = now()
        at = around
        if at:
            around = outer.pop() if outer else 0
        elif earlier:
            leave_earlier()

    def prepare() -> int:
        """The place of the next record, in newly prepared memory."""
        nonlocal words, ends, places, around
        earlier.extend((ends, place) for place in (*outer, around) if place > _ASIDE)
        outer.clear()
        around = _ASIDE if earlier else 0
        words, ends, places = records.prepare()
        return next(places)

    def leave_earlier() -> None:
        """End the innermost of the earlier blocks."""
        nonlocal at
        memory, place = earlier.pop()
        memory[place] = now()
        at = _ASIDE if earlier else 0

    return enter, leave
