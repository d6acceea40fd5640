"""Named choice: an option of a command that takes one of some names, and suggests the one that was meant."""

from __future__ import annotations

from typing import Any

import click

from popdist_py.messages.suggestion import did_you_mean


class NamedChoice(click.Choice[str]):
    """``click.Choice`` whose error ends with the name that was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = did_you_mean(value, map(str, self.choices))
            raise click.BadParameter(f"{error.message.rstrip('.')}{hint}", ctx, param) from None
