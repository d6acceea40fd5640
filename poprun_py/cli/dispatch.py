"""Dispatch: carries out a command line: prints information, prints a plan, or runs a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from popdist_py.messages.short_message import short_message
from poprun_py.errors import PoprunError
from poprun_py.options.option_table import LaunchOptions
from poprun_py.options.parser import parse
from poprun_py.output.standard_output import write_stdout

_COMPLETE_VARIABLE = "_POPRUN_PY_COMPLETE"  # set by the scripts of --completion


def execute(argv: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    if _COMPLETE_VARIABLE in os.environ:
        from poprun_py.cli.completion import complete

        sys.stdout.write(str(complete(argv)))
        return 0
    try:
        return _act(parse(argv, os.environ))
    except PoprunError as error:
        from poprun_py.output.log import say

        for line in error.lines:
            say(short_message(line))
        return error.exit_code


def _act(options: LaunchOptions) -> int:
    if options.asks:
        write_stdout(_answer(options).encode(sys.stdout.encoding if sys.stdout else "utf-8", "replace"))
        return 0
    from poprun_py.cli.launch import dry_run, launch  # slow to import, and not needed for an answer

    return dry_run(options) if options.dry_run else launch(options)


def _answer(options: LaunchOptions) -> str:
    """Return the answer to --help, --version or --completion."""
    if options.help:
        from poprun_py.cli.help import help_text  # imports click

        return help_text(_columns())
    if options.completion:
        from poprun_py.cli.completion import completion_script

        return completion_script(options.completion)
    from poprun_py.cli.versions import versions_text

    return versions_text(options.version_format)


def _columns() -> int:
    try:
        return min(100, os.get_terminal_size(1).columns)
    except OSError:
        return 100
