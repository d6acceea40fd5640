"""Printing: text with tables, as wide as the terminal, or 160 characters without one; JSON; files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType

from gcl.drawing.terminal_text import fitted, terminal_width
from ipu_emu.errors import EmulatorError
from popdist_py.files.atomic_write import replace_file, write_fault

_Facts = TypeVar("_Facts")
#: Columns of output that does not go to a terminal.
_PIPED = 160


def console() -> Console:
    """Return the console that commands print to; brackets, as in "time [ms]" and "x[0]", are text."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old terminal may lack characters of a drawing
    terminal = sys.stdout.isatty()
    width = terminal_width() or _PIPED
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(width=width, markup=False, highlight=False, soft_wrap=False, no_color=plain)


def say(text: str) -> None:
    """Print text; on a terminal, long lines are broken between words."""
    click.echo(fitted(text, terminal_width()))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def show(form: str, facts: _Facts, text: Callable[[_Facts], RenderableType]) -> None:
    """Print ``facts`` in the ``form`` json, or as the ``text`` of them."""
    if form == "json":
        print_json(facts)
    elif isinstance(shown := text(facts), str):
        say(shown)
    else:
        console().print(shown)


def check_outputs(**outputs: Path | None) -> None:
    """Raise EmulatorError before long work if it is clear that a file of an option cannot be written.

    Also raise it if two options write the same file.
    """
    taken: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if fault := write_fault(path):
            raise EmulatorError(f"--{option} {path} cannot be written: {fault}")
        other = option if path.exists() and not path.is_file() else taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise EmulatorError(f"--{other} and --{option} both write {path}; give each a name of its own")


def write(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file and print its name to standard error; raise EmulatorError if it cannot be written.

    ``mode``: its permissions, restricted by the umask.
    """
    try:
        replace_file(path, data, mode=mode)
    except OSError as error:
        raise EmulatorError(f"{path} cannot be written: {error.strerror}; choose another place") from error
    click.echo(f"written: {path}", err=True)
