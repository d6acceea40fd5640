"""Short commands: a command of click whose error messages do not repeat long values that the user gave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from popdist_py.messages.short_message import short_message


class ShortMessages(click.Command):
    """Cuts long values in the messages about the words of its command line."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _cut():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _cut():
            return super().invoke(ctx)


@contextmanager
def _cut() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        said = error.format_message()
        short = short_message(said)
        if short == said:
            raise
        raise click.UsageError(short, error.ctx) from None
