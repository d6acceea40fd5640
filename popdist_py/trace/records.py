"""Records: the layout of a trace file.

    header, 4096 bytes    magic, version, bytes of a chunk, records that were dropped
    chunk 0               definitions or records
    chunk 1               ...

A chunk begins with its kind and the number of the thread that writes it. Memory that is not written yet is zero. A
record is valid if its key, which is written last, is not zero, so a killed process leaves no incomplete record; a
sequence or span that is prepared before it runs is valid if its start is not zero. A span whose end is zero was open
when the process ended.

    record, 4 words       begin, end: nanoseconds of CLOCK_MONOTONIC
    of 8 bytes            value: depends on the kind
                          key: kind << 48 | track << 32 | name, of which the last two are numbers of definitions
    definition            number of bytes, then JSON; the number of bytes is written last
"""

from __future__ import annotations

import os
from enum import IntEnum, StrEnum
from struct import Struct
from typing import Final

SUFFIX = ".trace"
#: The suffix of profiles of programs, JSON files next to an executable or to the trace of a process.
PROFILE_SUFFIX = ".profile.json"
#: The fact in a trace: path and SHA-256 of a profile next to an executable.
PROFILE = "profile"
#: The fact in a trace: the digest of the weights that a program trained, the last that it read.
WEIGHTS = "weights"
MAGIC = b"IPUTRACE"
VERSION = 3

#: Magic, version, bytes of a chunk; records that were dropped.
HEADER = Struct("<8sIIq")
HEADER_BYTES = 4096

#: Kind, number of the thread.
CHUNK = Struct("<IIQQQ")
CHUNK_BYTES = 1 << 18

#: Words of a record, and the place of each.
RECORD_WORDS = 4
BEGIN, END, VALUE, KEY = range(RECORD_WORDS)
WORD_BYTES = 8
#: A word in memory: C's long, which Python writes faster than a long long of the same size.
WORD_FORMAT: Final = "l"

DEFINITION = Struct("<I")


class ChunkKind(IntEnum):
    """What a chunk holds."""

    RECORDS = 1
    DEFINITIONS = 2


class Kind(IntEnum):
    """The kind of a record, which determines the meaning of its value."""

    SPAN = 1  # a number given by the caller, such as the position of a collective among all
    INSTANT = 2  # likewise
    COUNTER = 3  # the bits of a 64-bit float
    FLOW_OUT = 4  # the number that the FLOW_IN of the receiver also has
    FLOW_IN = 5
    SEQUENCE = 6  # spans without gaps: the value of all << 32 | number of time stamps, which follow in whole records


#: The most spans of a sequence; the numbers of their names are one definition, and a round is in one chunk.
LONGEST_SEQUENCE = 2048


def key_of(kind: Kind, name: int, track: int = 0) -> int:
    """The key of records of a kind, with the numbers of their name and track."""
    return kind << 48 | track << 32 | name


class Category(StrEnum):
    """The kind of activity that a span records."""

    LAUNCH = "launch"
    INITIALISATION = "initialisation"
    COMPILATION = "compilation"
    WEIGHTS = "weight loading"
    DATA = "data preparation"
    HOST_IO = "host I/O"
    COMPUTE = "compute"
    IPU_COPIES = "copies between IPUs"
    STREAMING_MEMORY = "Streaming Memory"
    COLLECTIVES = "gradient communication"
    UPDATE = "weight update"
    CHECKPOINT = "checkpoint"
    USER = "user"

    __hash__ = str.__hash__  # enumerations have one in Python, which takes as long as recording a span


CATEGORIES = [category.value for category in Category]


def dropped_records(path: str | os.PathLike[str]) -> int:
    """The records that did not fit into a trace file; raise OSError if it cannot be read."""
    with open(path, "rb") as file:
        start = file.read(HEADER.size)
    return int(HEADER.unpack(start)[-1]) if len(start) == HEADER.size else 0
