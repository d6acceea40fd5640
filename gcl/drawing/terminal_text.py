"""Terminal text: lines that are as wide as the terminal at most; what goes elsewhere stays as it is."""

from __future__ import annotations

import shutil
import sys
import textwrap

__all__ = ["NARROW", "fitted", "terminal_width"]

#: Columns of a terminal that does not say how many it has.
NARROW = 80
_LEAST = 20


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if output goes elsewhere."""
    return shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """Break lines that are longer than ``width`` between words; what follows is indented two more than its line.

    A word that is too long stays whole. With None nothing is changed.
    """
    if width is None:
        return text
    return "\n".join(_fitted(line, max(width, _LEAST)) for line in text.split("\n"))


def _fitted(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    words = line.lstrip()
    indent = line[: len(line) - len(words)]
    pieces = textwrap.wrap(
        words,
        width - len(indent),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
    return "\n".join(indent + piece for piece in pieces)
