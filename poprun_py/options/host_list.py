"""Host list: the hosts of a job, from --host, a host file or a Slurm allocation.

h0,h1             two hosts
n[0-2,4]          n0, n1, n2 and n4
r[1-2]n[08-10]    r1n08, r1n09, r1n10, r2n08, ... (with leading zeros, as in Slurm)
h0:2              h0 takes at most two instances; in a file also "h0 slots=2"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from popdist_py.files.bounded_read import open_given
from poprun_py.errors import UsageError

#: Far more hosts than any cluster has; a larger range is a typing error.
_MOST = 65536
#: The most characters of a host file: those of the most hosts, and comments.
_MOST_CHARACTERS = 1 << 24

#: Patterns are compiled when a list is read: few jobs have one.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_ENTRY = r"(?P<name>.*?)(?::(?P<slots>\d+))?"
_RANGE = r"(\d+)(?:-(\d+))?"

#: Words that may follow the name in a host file; only slots has an effect.
_FILE_WORD = r"(slots|max[-_]slots)=(\d+)"


@dataclass(frozen=True)
class Host:
    """A host, by the name that ssh uses; ``slots`` is the largest number of instances, None if it was not given."""

    name: str
    slots: int | None = None


def from_list(text: str, *, source: str) -> tuple[Host, ...]:
    """Return the hosts of a comma-separated list with ranges; raise UsageError, which names the option ``source``."""
    try:
        return _checked(host for entry in _split(text) for host in _hosts(entry))
    except ValueError as error:
        raise UsageError([f"{source}: {error}"]) from None


def from_file(path: str, *, source: str) -> tuple[Host, ...]:
    """Return the hosts of a file: one (or a list) per line, "#" starts a comment; raise UsageError with the line."""
    try:
        with open(open_given(path), encoding="utf-8", errors="surrogateescape") as stream:
            text = stream.read(_MOST_CHARACTERS + 1)
    except OSError as error:
        raise UsageError([f"{source}: the file cannot be read: {error.strerror}"]) from None
    if len(text) > _MOST_CHARACTERS:
        raise UsageError([f"{source}: the file has more than {_MOST_CHARACTERS:,} characters; give a list of hosts"])
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            hosts += _of_line(line.partition("#")[0].split())
        except ValueError as error:
            raise UsageError([f"{source}, line {number}: {error}"]) from None
    try:
        return _checked(hosts)
    except ValueError as error:
        raise UsageError([f"{source}: {error}"]) from None


def expanded(text: str) -> tuple[str, ...]:
    """Return the names in a list such as Slurm's ``n[1-3,7],login``; raise ValueError."""
    return tuple(host.name for entry in _split(text) for host in _hosts(entry))


def names_here(nodename: str) -> frozenset[str]:
    """Return the names by which the host of this name refers to itself."""
    return frozenset({"localhost", "127.0.0.1", nodename, nodename.partition(".")[0]})


def _of_line(words: list[str]) -> Iterator[Host]:
    if not words:
        return
    slots = None
    for word in words[1:]:
        match = re.fullmatch(_FILE_WORD, word)
        if not match:
            raise ValueError(f"{word!r} is not understood; a host and slots=N are expected")
        slots = int(match[2]) if match[1] == "slots" else slots
    for entry in _split(words[0]):
        for host in _hosts(entry):
            yield Host(host.name, slots if slots is not None else host.slots)


def _checked(hosts: Iterable[Host]) -> tuple[Host, ...]:
    listed = tuple(hosts)
    if not listed:
        raise ValueError("no host is named; give at least one, such as h0,h1 or n[0-3]")
    twice = [name for name, count in Counter(host.name for host in listed).items() if count > 1]
    if twice:
        raise ValueError(
            f"{', '.join(twice)} is named more than once; name each host once, the instances are divided evenly"
        )
    return listed


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    entries, depth = [""], 0
    for letter in text.strip():
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter == "," and not depth:
            entries.append("")
        else:
            entries[-1] += letter
    if depth:
        raise ValueError(f"{text!r}: a bracket is not closed; ranges look like n[0-2,4]")
    return [entry.strip() for entry in entries if entry.strip()]


def _hosts(entry: str) -> Iterator[Host]:
    match = re.fullmatch(_ENTRY, entry)
    name = match["name"] if match else entry
    slots = int(match["slots"]) if match and match["slots"] else None
    if slots == 0:
        raise ValueError(f"{entry!r}: a host with no slots; leave it out")
    for host in _names(name):
        if not re.fullmatch(_NAME, host):
            raise ValueError(f"{host!r} is not a host name; give names or IPv4 addresses, such as h0,h1 or n[0-3]")
        yield Host(host, slots)


def _names(pattern: str) -> list[str]:
    """Expand every bracket of ``pattern``; the last one varies fastest."""
    names = [""]
    for part in re.split(r"(\[[^]]*\])", pattern):
        choices = _numbers(part) if part.startswith("[") else [part]
        if len(names) * len(choices) > _MOST:
            raise ValueError(f"{pattern!r} names more than {_MOST} hosts")
        names = [name + choice for name in names for choice in choices]
    return names


def _numbers(bracket: str) -> list[str]:
    """``[08-10,12]`` -> 08, 09, 10, 12."""
    numbers: list[str] = []
    for piece in bracket[1:-1].split(","):
        match = re.fullmatch(_RANGE, piece.strip())
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if len(last) > 9 or int(first) > int(last):
            raise ValueError(f"{piece!r} is not a range; ranges look like [0-2,4], the smaller number first")
        if int(last) - int(first) >= _MOST:
            raise ValueError(f"{piece!r} names more than {_MOST} hosts")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
