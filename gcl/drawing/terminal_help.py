"""Terminal help: wraps the help of a command, including its tables and examples, to the width of the terminal."""

from __future__ import annotations

import click

from gcl.drawing.terminal_text import fitted, terminal_width

__all__ = ["FittedContext"]


class _FittedHelp(click.HelpFormatter):
    """Text of which click wraps the paragraphs, and this what is to stay in lines of its own."""

    def getvalue(self) -> str:
        return fitted(super().getvalue(), terminal_width())


class FittedContext(click.Context):
    """What a command runs in that is given this as its ``context_class``."""

    formatter_class = _FittedHelp
