"""Help: the text of --help, made of the table of options."""

from __future__ import annotations

from itertools import groupby

from click.formatting import HelpFormatter

from poprun_py.options import OPTIONS, Option

__all__ = ["help_text"]

_INTRODUCTION = (
    "Start a program as several instances that share the replicas of a model, watch over them, and end them all "
    "when one fails. Everything after the program belongs to the program. Options may be shortened as long as "
    "they stay unambiguous; --option value and --option=value are the same."
)
_EXAMPLES = (
    "poprun-py --num-instances 2 --num-replicas 4 python train.py --epochs 3",
    "poprun-py --num-instances 4 --print-topology=yes --only-output-from-instance 0 ./train.sh",
    "poprun-py --num-instances 2 --num-replicas 4 --dry-run python train.py",
)


def help_text(width: int = 100) -> str:
    """The whole text, wrapped to ``width`` columns."""
    out = HelpFormatter(width=width, max_width=width)
    out.write_usage("poprun-py", "[options] program [program arguments]")
    out.write_paragraph()
    with out.indentation():
        out.write_text(_INTRODUCTION)
    for group, options in groupby(sorted(OPTIONS, key=_order), key=lambda option: option.group):
        with out.section(group):
            out.write_dl([(_spelling(option), option.help) for option in options], col_max=34)
    with out.section("Examples"):
        for example in _EXAMPLES:
            out.write(" " * out.current_indent + example + "\n")
    return out.getvalue()


def _order(option: Option) -> int:
    return [other.group for other in OPTIONS].index(option.group)


def _spelling(option: Option) -> str:
    letter = f"-{option.letter}, " if option.letter else ""
    return f"{letter}--{option.name}" + (f" {option.metavar}" if option.metavar else "")
