"""Tag colours: the colour of each instance's tags on a terminal, chosen to suit colour-blind users too."""

from __future__ import annotations

from collections.abc import Mapping

#: Indices of the 256-colour table, which all terminals share. Each has a contrast of at least 3 to a black and to a
#: white background. Any two differ by 30 or more in CIE L*a*b*, also as seen without red or without green cones
#: (tests/poprun_py/output/test_tag_colors.py computes both); red is left to errors.
PALETTE = (69, 136, 93, 31, 137, 59)

#: Terminals with 8 colours: cyan, yellow, magenta, blue.
_BASIC = (36, 33, 35, 34)


def wants_color(environ: Mapping[str, str]) -> bool:
    """Whether the variables allow colours on a terminal (no-color.org: NO_COLOR counts unless it is empty)."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def tag_colors(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the control sequences that start the colours, to be used in turn; none if no colours are wanted."""
    if not wants_color(environ):
        return ()
    if environ.get("COLORTERM") or "256color" in environ["TERM"]:
        return tuple(b"\x1b[38;5;%dm" % number for number in PALETTE)
    return tuple(b"\x1b[%dm" % number for number in _BASIC)
