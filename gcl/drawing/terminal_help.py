"""Terminal help: wraps the help of a command, including its tables and examples, to the width of the terminal."""

from __future__ import annotations

import click

from gcl.drawing.terminal_text import fitted, terminal_width


class _FittedHelp(click.HelpFormatter):
    """Help text: click wraps the paragraphs, this class the lines that must stay separate."""

    def getvalue(self) -> str:
        return fitted(super().getvalue(), terminal_width())


class FittedContext(click.Context):
    """The ``context_class`` of commands whose help is wrapped like this."""

    formatter_class = _FittedHelp
