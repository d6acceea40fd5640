"""Reference pages of the commands, from their click definitions; poprun-py has a page of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

import gcl.bench
import gcl.explain
import ipu_emu.cli
import ipu_emu.compat
from docs._ext.docstrings import to_rst
from docs._ext.package_maps import cell

HEAD = """\
# Commands

| command | |
|---|---|
| `poprun-py` | starts a program as several instances: [all options](../options.md) |
| `ipu-emu` | shows systems, schedules, models, memory and modelled time: below |
| `python -m gcl.bench` | measures collectives: below |
| `python -m gcl.explain` | shows how a collective would run on IPUs: below |
| `python -m ipu_emu.compat` | runs a program that imports `popart` and `popdist`: below |

Every command has `--help`. A usage error is one message and exit code 2.
"""


def page() -> str:
    """The page as Markdown."""
    main = ipu_emu.cli.main
    parts = [HEAD, "## ipu-emu\n", _help(main)]
    parts += [_command(f"ipu-emu {name}", command) for name, command in sorted(main.commands.items())]
    parts.append(_command("python -m gcl.bench", gcl.bench.main))
    parts.append(_command("python -m gcl.explain", gcl.explain.main))
    parts.append("## python -m ipu_emu.compat\n\n" + _text(inspect.getdoc(ipu_emu.compat) or ""))
    return "\n".join(parts)


def _command(name: str, command: click.Command) -> str:
    rows = "".join(_rows(command))
    table = f"| option | default | meaning |\n|---|---|---|\n{rows}"
    return f"## {name}\n\n{_help(command)}\n{table}"


def _help(command: click.Command) -> str:
    """The help text; blocks that click prints as they are (after a ``\\b``) stay as they are."""
    parts = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b"):
            title, _, rest = block[2:].partition("\n")
            parts.append(
                f"**{title}**\n\n```text\n{rest}\n```\n" if rest.startswith(" ") else f"```text\n{block[2:]}\n```\n"
            )
        else:
            parts.append(f"{cell(block)}\n")
    return "\n".join(parts)


def _text(docstring: str) -> str:
    return "```{eval-rst}\n" + "\n".join(to_rst(docstring.splitlines())) + "```\n"


def _rows(command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            kind = "" if parameter.nargs == 1 else "..."
            yield f"| `{parameter.make_metavar(context)}{kind}` | | |\n"
        elif isinstance(parameter, click.Option) and not parameter.hidden:
            cells = (_spelling(parameter, context), _default(parameter, context), cell(parameter.help or ""))
            yield f"| {' | '.join(cells)} |\n"


def _spelling(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} `{option.make_metavar(context)}`".replace("|", "\\|")


def _default(option: click.Option, context: click.Context) -> str:
    value = option.get_default(context, call=False)
    unset = value is None or callable(value) or value == () or "UNSET" in repr(value).upper()
    return "" if unset or (option.is_flag and value is False) else f"`{value}`"
