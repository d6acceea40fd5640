"""Docstrings for Sphinx: the project's plain-text docstrings as reStructuredText that needs no markup of its own.

A paragraph becomes a paragraph and a list stays a list. A block with indented lines, aligned columns or drawn lines
is kept as it is, in a fixed-width font.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

_DRAWN = re.compile(r"^(\+--|\||[│├└┌─])|\S {2,}\S|^ *\+-- ")


def to_rst(lines: Iterable[str]) -> list[str]:
    """The lines of a docstring, as autodoc hands them over, as reStructuredText."""
    result: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            result += [*_block(list(group)), ""]
    return result


def _block(lines: list[str]) -> list[str]:
    if lines[0].startswith(">>>"):
        return lines
    if lines[0].startswith("- "):
        return _items(lines)
    if any(line.startswith(" ") or _DRAWN.search(_without_code(line)) for line in lines):
        return ["::", "", *(f"    {line}" for line in lines)]
    return [escaped(line) for line in lines]


def _items(lines: list[str]) -> list[str]:
    """A list; lines that go on with an item are indented by two columns."""
    return [f"- {escaped(line[2:])}" if line.startswith("- ") else f"  {escaped(line.strip())}" for line in lines]


def _without_code(line: str) -> str:
    return re.sub(r"``.*?``", "code", line)


def escaped(text: str) -> str:
    """Text in which only ``code`` is markup."""
    pieces = re.split(r"(``.+?``)", text)
    return "".join(
        piece if piece.startswith("``") else re.sub(r"([\\*`|]|_(?!\w))", r"\\\1", piece) for piece in pieces
    )
