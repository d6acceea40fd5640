"""Short message: the text of an error in which words of hundreds of characters are cut in their middle."""

from __future__ import annotations

#: Longer words are cut: more than most paths have.
_LONGEST = 240
_HEAD, _TAIL = 60, 20
#: Longer messages are cut: more than all mistakes of a command line take.
_MOST = 4000


def short_message(text: str) -> str:
    """Return ``text`` with its long words cut: what a user gave may be of any length."""
    if len(text) <= _LONGEST:
        return text
    import re

    cut = re.sub(rf"\S{{{_LONGEST + 1},}}", lambda word: _cut(word[0], _HEAD, _TAIL), text)
    return cut if len(cut) <= _MOST else _cut(cut, _MOST - 500, 400)


def _cut(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}...({len(text) - head - tail:,} characters)...{text[-tail:]}"
