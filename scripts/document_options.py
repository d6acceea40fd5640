"""Write what the tables of options say into docs/: reference/options.md, and the table of other launchers' options.

python scripts/document_options.py           writes both pages
python scripts/document_options.py --check   writes nothing; exit code 1 where a page is out of date
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from poprun_py.cli.help import GROUPS
from poprun_py.options.foreign_options import FOREIGN
from poprun_py.options.option_table import OPTIONS, Option

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- written by scripts/document_options.py -->\n", "<!-- end of what it writes -->\n"

OPTIONS_HEAD = """\
# Options of poprun-py

`poprun-py [options] [NAME=VALUE ...] program [program arguments]`. `poprun-py --help` says the same as this page,
which `scripts/document_options.py` writes from the table in `poprun_py/options/option_table.py`.

- `--option value` and `--option=value` are the same. An option that needs a value takes the next word whatever it
  looks like: `--mpi-global-args --tag-output`.
- Names may be shortened as long as they stay unambiguous (`--num-inst 2`). An exact name wins over longer ones.
- Yes-or-no options take a word: `yes`, `no`, `on`, `off`, `true`, `false`, `1`, `0`, in any letter case.
- Options end at the program, or at `--`. `NAME=VALUE` before the program sets a variable for its instances.
- All mistakes of a command line are reported together, with exit code 2, before anything is started.
"""


def options_page() -> str:
    """docs/reference/options.md."""
    parts = [OPTIONS_HEAD]
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        rows = [f"| {_spelled(option)} | {_cell(option.help)} |" for option in options]
        about = f"{_cell(GROUPS[group])}\n\n" if GROUPS[group] else ""
        parts.append(f"## {group}\n\n{about}| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def habits_page(before: str) -> str:
    """docs/guides/from-mpirun-and-torchrun.md: ``before`` with a new table between the marks."""
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = [f"| {row.launcher} | {_code(row.theirs)} | {_code(row.ours)} | {_cell(row.note)} |" for row in FOREIGN]
    table = "| launcher | there | here | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def _spelled(option: Option) -> str:
    names = [f"-{option.letter}"] * bool(option.letter) + [f"--{name}" for name in option.spellings]
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join(f"`{name}`" for name in [*names[:-1], names[-1] + value]).replace("|", "\\|")


def _code(words: str) -> str:
    return ", ".join(f"`{_cell(word)}`" for word in words.split(", ")) if words else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    habits = DOCS / "guides/from-mpirun-and-torchrun.md"
    pages = {DOCS / "reference/options.md": options_page(), habits: habits_page(habits.read_text())}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path} is out of date; run python scripts/document_options.py")
        else:
            path.write_text(pages[path])
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
