"""Recorder: writes the spans, instants, counters and flows of one process to its trace file.

Each thread writes to a chunk of its own that is mapped into memory, so recording takes no lock and makes no system
call; the operating system writes the pages to the disk in the background, also if the process is killed.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Items
from contextlib import suppress
from math import ceil
from operator import length_hint
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from popdist_py.trace.records import (
    CHUNK,
    CHUNK_BYTES,
    DEFINITION,
    END,
    HEADER,
    HEADER_BYTES,
    KEY,
    LONGEST_SEQUENCE,
    MAGIC,
    RECORD_WORDS,
    SUFFIX,
    VALUE,
    VERSION,
    WORD_BYTES,
    WORD_FORMAT,
    Category,
    ChunkKind,
    Kind,
    key_of,
)

_CHUNK_WORDS = CHUNK_BYTES // WORD_BYTES
_FIRST_WORD = CHUNK.size // WORD_BYTES
_ZEROS = bytes(CHUNK_BYTES)
#: The longest definition, in bytes of JSON; longer ones are omitted.
_LONGEST_DEFINITION = 1 << 16
#: The most rounds of a sequence that are prepared at once.
_MOST_ROUNDS = 64
#: Linux's advice that maps all pages of memory for writing at once; since 5.14.
_MADV_POPULATE_WRITE = 23


class _Thread(threading.local):
    """The chunk of this thread as words, and the places of free records in it; none at first."""

    chunk: tuple[memoryview, Iterator[int]] = (memoryview(b""), iter(()))


class Recorder:
    """Records into a new file in ``folder`` up to ``limit`` bytes; later records are counted and dropped.

    ``about`` describes the process: any JSON. Raises OSError if the folder or the file cannot be created.
    """

    def __init__(self, folder: str, *, limit: int, about: Mapping[str, Any]) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{os.getpid()}.{os.urandom(8).hex()}{SUFFIX}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)  # command lines and names are private to the user
        try:
            os.posix_fallocate(self._descriptor, 0, HEADER_BYTES)
            self._header = mmap.mmap(self._descriptor, HEADER_BYTES)
        except OSError:
            os.close(self._descriptor)
            os.unlink(self.path)
            raise
        HEADER.pack_into(self._header, 0, MAGIC, VERSION, CHUNK_BYTES, 0)
        self._size, self._limit = HEADER_BYTES, limit
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._tracks: dict[str, int] = {}
        self._meanings: dict[int, tuple[str, Category, dict[str, Any]]] = {}
        #: The numbers of names without arguments, which are looked up quickly.
        self.plain: dict[tuple[str, Category], int] = {}
        self._serials: dict[str, int] = {}
        self._threads: list[int] = []
        self._definitions = self._new_chunk(ChunkKind.DEFINITIONS, 0)
        self._defined = CHUNK.size
        self._own = _Thread()
        self.define({"process": dict(about)})

    # What is recorded

    def name(self, name: str, category: Category = Category.USER, **args: Any) -> int:
        """The number of a name with its category and arguments (any JSON); equal ones share a number."""
        number = None if args else self.plain.get((name, category))
        if number is None:
            number = self._number(self._names, "name", {"name": name, "category": category.value, "args": args})
            self._meanings[number] = (name, category, args)
            if not args:
                self.plain[name, category] = number
        return number

    def meaning(self, number: int) -> tuple[str, Category, dict[str, Any]]:
        """The name, category and arguments that a number of ``name`` stands for."""
        return self._meanings[number]

    def track(self, name: str, **args: Any) -> int:
        """The number of a track, such as an IPU or a replica, on which records of a thread are shown."""
        return self._number(self._tracks, "track", {"name": name, "args": args})

    def _number(self, table: dict[str, int], what: str, definition: dict[str, Any]) -> int:
        key = repr(definition)
        number = table.get(key)
        if number is None:
            with self._lock:
                number = table.setdefault(key, len(table) + 1)
                if number == len(table):
                    self.define({what: number, "definition": definition})
        return number

    def span(self, name: int, *, track: int = 0, value: int = 0) -> Span:
        """A context manager that records how long its block takes."""
        return Span(self, Kind.SPAN << 48 | track << 32 | name, value)

    def record(self, key: int, begin: int, end: int, value: int = 0) -> None:
        """Write one record with a key of ``key_of``; times are of ``perf_counter_ns``."""
        words, free = self._own.chunk
        at = next(free, 0)
        if not at:
            words, (at,) = self.reserve(1)
        words[at], words[at + END], words[at + VALUE] = begin, end, value
        words[at + KEY] = key

    def instant(self, name: int, *, track: int = 0, value: int = 0) -> None:
        """Record an event at the current time."""
        now = perf_counter_ns()
        self.record(key_of(Kind.INSTANT, name, track), now, now, value)

    def counter(self, name: int, value: float, *, track: int = 0) -> None:
        """Record the current value of a counter."""
        now = perf_counter_ns()
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        self.record(key_of(Kind.COUNTER, name, track), now, now, bits)

    def flow(self, name: int, number: int, *, out: bool, track: int = 0) -> None:
        """Record one end of a transfer; ``number`` is the same at both ends."""
        now = perf_counter_ns()
        self.record(key_of(Kind.FLOW_OUT if out else Kind.FLOW_IN, name, track), now, now, number)

    def sequence(self, names: Items[int], track: int = 0, *, groups: Items[Items[int]] = ()) -> Sequence:
        """Up to ``LONGEST_SEQUENCE`` spans that follow each other without a gap, each time in the same order.

        ``groups``: one time stamp for each, of consecutive spans that share its time in these proportions.
        """
        if len(names) > LONGEST_SEQUENCE:
            raise ValueError(f"{len(names)} spans are too many for a sequence; give at most {LONGEST_SEQUENCE}")
        shared = {"groups": [list(group) for group in groups]} if groups else {}
        name = self.name("sequence", Category.USER, spans=list(names), **shared)
        return Sequence(self, key_of(Kind.SEQUENCE, name, track), len(groups) or len(names))

    def serial(self, what: str) -> int:
        """The number of earlier calls for ``what``: equal in processes that make the same calls in the same order."""
        with self._lock:
            self._serials[what] = number = self._serials.get(what, -1) + 1
        return number

    def define(self, definition: Mapping[str, Any]) -> None:
        """Write the definition of a number, or a fact about the process."""
        data = json.dumps(definition, default=str).encode()
        if len(data) > _LONGEST_DEFINITION:
            return
        with self._lock:
            if self._definitions is not None and self._defined + DEFINITION.size + len(data) > CHUNK_BYTES:
                self._definitions, self._defined = self._new_chunk(ChunkKind.DEFINITIONS, 0), CHUNK.size
            if self._definitions is None:
                return
            start = self._defined + DEFINITION.size
            self._definitions[start : start + len(data)] = data
            DEFINITION.pack_into(self._definitions, self._defined, len(data))
            self._defined = start + len(data)

    def close(self) -> None:
        """Stop recording; existing records stay in the file."""
        self._limit = 0
        self._own = _Thread()
        with suppress(OSError):
            os.close(self._descriptor)

    # Memory

    def reserve(self, records: int, times: int = 1) -> tuple[memoryview, range]:
        """Words, and the places in them of at least one and up to ``times`` runs of adjacent free records.

        If the limit is reached, the records of one run are counted as dropped, and the memory belongs to no file.
        """
        words, free = self._own.chunk
        runs = min(times, length_hint(free) // records)
        if runs:
            first = next(free)
            end = first + runs * records * RECORD_WORDS
            self._own.chunk = words, iter(range(end, _CHUNK_WORDS, RECORD_WORDS))
            return words, range(first, end, records * RECORD_WORDS)
        with self._lock:
            chunk = self._new_chunk(ChunkKind.RECORDS, self._number_of_thread())
            if chunk is None:
                self._drop(records)
                words = memoryview(bytearray((1 + records) * RECORD_WORDS * WORD_BYTES)).cast(WORD_FORMAT)
                return words, range(_FIRST_WORD, _FIRST_WORD + 1)
        self._own.chunk = memoryview(chunk).cast(WORD_FORMAT), iter(range(_FIRST_WORD, _CHUNK_WORDS, RECORD_WORDS))
        return self.reserve(records, times)

    def _drop(self, records: int) -> None:
        *start, dropped = HEADER.unpack_from(self._header)
        HEADER.pack_into(self._header, 0, *start, dropped + records)

    def _new_chunk(self, kind: ChunkKind, thread: int) -> mmap.mmap | None:
        """A new chunk at the end of the file; None if the limit is reached or the disk is full."""
        if self._size + CHUNK_BYTES > self._limit:
            return None
        try:
            os.posix_fallocate(self._descriptor, self._size, CHUNK_BYTES)  # a full disk is an error here, not SIGBUS
            os.pwrite(self._descriptor, _ZEROS, self._size)  # existing pages are mapped three times as fast
            memory = mmap.mmap(self._descriptor, CHUNK_BYTES, offset=self._size)
        except OSError:
            self._limit = 0
            return None
        with suppress(OSError):
            memory.madvise(_MADV_POPULATE_WRITE)  # so that no page is mapped while recording
        CHUNK.pack_into(memory, 0, kind, thread, 0, 0, 0)
        self._size += CHUNK_BYTES
        return memory

    def _number_of_thread(self) -> int:
        thread = threading.get_native_id()
        if thread not in self._threads:
            self._threads.append(thread)
            self.define({"thread": thread, "name": threading.current_thread().name})
        return thread


class Span:
    """Records a block: its start when the block is entered, its end when it is left."""

    __slots__ = ("_at", "_own", "_words", "key", "recorder", "value")

    def __init__(self, recorder: Recorder, key: int, value: int = 0) -> None:
        self.recorder, self.key, self.value, self._own = recorder, key, value, recorder._own

    def __enter__(self) -> None:
        words, free = self._own.chunk
        at = next(free, 0)
        if not at:
            words, (at,) = self.recorder.reserve(1)
        self._words, self._at = words, at
        if self.value:
            words[at + VALUE] = self.value
        words[at] = perf_counter_ns()
        words[at + KEY] = self.key

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._words[self._at + END] = perf_counter_ns()

    def cancel(self) -> None:
        """Record nothing for this block."""
        self._words[self._at + KEY] = 0


class Sequence:
    """The times of spans that always follow each other in one order, in rounds of ``count`` time stamps.

    Memory is prepared for several rounds at a time, so that a round only writes its time stamps.
    """

    def __init__(self, recorder: Recorder, key: int, count: int) -> None:
        self._recorder, self.count = recorder, count
        self._records = 1 + ceil(count / RECORD_WORDS)
        self._prepared = struct.pack("qqqq", 0, 0, count, key) + bytes(
            (self._records - 1) * RECORD_WORDS * WORD_BYTES
        )
        self._rounds = 1

    def rounds(self, *, first: bool = False) -> tuple[memoryview, Iterator[int]]:
        """Words, and where in them the next rounds of this thread are; more of them each time, unless ``first``.

        The word at the place of a round is its start, which makes it valid; it is written after the ``VALUE``: the
        number that all spans have << 32 | ``count``. ``RECORD_WORDS`` further on the time stamps follow.
        """
        self._rounds = 1 if first else min(2 * self._rounds, _MOST_ROUNDS)
        words, places = self._recorder.reserve(self._records, self._rounds)
        stop = places[-1] + self._records * RECORD_WORDS
        words[places[0] : stop] = memoryview(self._prepared * len(places)).cast(WORD_FORMAT)
        return words, iter(places)
