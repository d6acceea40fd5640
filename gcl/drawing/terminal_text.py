"""Terminal text: wraps lines to the width of the terminal; output to files and pipes is not wrapped."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

#: Columns of a terminal of unknown width.
NARROW = 80
#: Characters of a line at least, and of a column that is continued below itself.
_LEAST, _LEAST_OF_COLUMN = 16, 24
_GAP = re.compile(r"  +")


def terminal_width() -> int | None:
    """The number of columns of the terminal on standard output; None if output is redirected."""
    return shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """Break lines that are longer than ``width`` between words; the rest is aligned with the last column.

    A column begins after two blanks. Without a column, or if it is too narrow, the rest is indented two more than its
    line. Words are never broken. With None nothing is changed.
    """
    if width is None:
        return text
    return "\n".join(_fitted(line, max(width, _LEAST)) for line in text.split("\n"))


def _fitted(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    words = line.lstrip()
    indent = len(line) - len(words)
    gaps = [gap.end() for gap in _GAP.finditer(line, indent)]
    room = max(_LEAST_OF_COLUMN, *map(len, line[gaps[-1] :].split())) if gaps else 0
    hanging = gaps[-1] if gaps and gaps[-1] + room <= width else indent + 2
    pieces = textwrap.wrap(
        line[indent:],
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return "\n".join(pieces)
