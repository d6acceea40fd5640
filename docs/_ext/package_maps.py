"""Package maps: every folder and every file of the four packages with its one line, read from module docstrings.

scripts/maps                     prints the folders of every package, with what import-linter allows them to import
scripts/maps gcl/transport       prints the files of one folder and of the folders in it
scripts/maps --write             brings the maps in docs/ up to date (docs/reference/maps, docs/architecture.md)
"""

from __future__ import annotations

import ast
import re
import signal
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("poprun_py", "ipu_emu", "gcl", "popdist_py")


@dataclass(frozen=True)
class Layers:
    """One layers contract of pyproject.toml: rows from top to bottom, each a tuple of dotted names."""

    name: str
    rows: tuple[tuple[str, ...], ...]

    def below(self, module: str) -> list[str] | None:
        """The layers below the one that is named ``module``, or None if the contract does not name it."""
        for index, row in enumerate(self.rows):
            if module in row:
                return [name for lower in self.rows[index + 1 :] for name in lower]
        return None


@cache
def contracts() -> list[dict[str, object]]:
    """The import-linter contracts of pyproject.toml, in order."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: list[dict[str, object]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return table


@cache
def layer_contracts() -> list[Layers]:
    """The layers contracts, one for each container that they name."""
    layers = []
    for contract in contracts():
        if contract["type"] != "layers":
            continue
        for container in contract.get("containers", [""]):  # type: ignore[attr-defined]
            prefix = f"{container}." if container else ""
            rows = tuple(
                tuple(prefix + name.strip("() ") for name in re.split(r"[|:]", row))
                for row in contract["layers"]  # type: ignore[attr-defined]
            )
            layers.append(Layers(str(contract["name"]), rows))
    return layers


def may_import(folder: Path) -> list[str] | None:
    """The folders that a contract puts below this one, or None where no contract names it."""
    module = dotted(folder)
    for layers in layer_contracts():
        below = layers.below(module)
        if below is not None:
            parent = module.rpartition(".")[0]
            return [name.removeprefix(f"{parent}.") for name in below]
    return None


def dotted(path: Path) -> str:
    """``gcl.core`` for the folder gcl/core, ``gcl.core.groups`` for the file gcl/core/groups.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def docstring(path: Path) -> str:
    """The docstring of a module, or of the package in a folder; empty if there is none."""
    file = path / "__init__.py" if path.is_dir() else path
    return (ast.get_docstring(ast.parse(file.read_text())) or "") if file.exists() else ""


def first_line(path: Path) -> str:
    """The first line of that docstring, without the repeated name of the module."""
    line = docstring(path).partition("\n")[0]
    return re.sub(rf"^{re.escape(path.stem)}: ", "", line)


def folders(top: Path) -> Iterator[Path]:
    """``top`` and every folder below it that holds Python modules, in the order of ls."""
    yield top
    for child in sorted(top.iterdir()):
        if child.is_dir() and (child / "__init__.py").exists():
            yield from folders(child)


def modules(folder: Path) -> list[Path]:
    """The modules in a folder, without its __init__.py, which is the line of the folder itself."""
    return [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def children(folder: Path) -> list[Path]:
    """The subfolders of a folder that are packages."""
    return [path for path in sorted(folder.iterdir()) if (path / "__init__.py").exists()]


def folder_table(folder: Path) -> str:
    """A Markdown table of the subfolders of a folder: name, line, what a contract lets it import."""
    rows = ["| folder | holds | may import |", "|---|---|---|"]
    for child in children(folder):
        below = may_import(child)
        allowed = "no contract" if below is None else ", ".join(f"`{name}`" for name in below) or "none of these"
        rows.append(f"| `{child.name}/` | {cell(first_line(child))} | {allowed} |")
    return "\n".join(rows) + "\n"


def layer_line(folder: Path) -> str:
    """The layers of the contract for a folder, top to bottom; a folder imports only from those below it."""
    for layers in layer_contracts():
        if layers.rows[0][0].rpartition(".")[0] == dotted(folder):
            rows = [" | ".join(name.rpartition(".")[2] for name in row) for row in layers.rows]
            return f"Layers, top to bottom: `{' > '.join(rows)}`.\n"
    return ""


def summary(package: str) -> str:
    """The folders of a package and of its folders, a line each, and its layers, for the page on the architecture."""
    top, rows = ROOT / package, ["| folder | holds |", "|---|---|"]
    for folder in folders(top):
        if folder != top:
            rows.append(f"| `{folder.relative_to(ROOT)}/` | {cell(first_line(folder))} |")
    files = ", ".join(f"`{path.name}`" for path in modules(top))
    return f"{layer_line(top)}\n" + "\n".join(rows) + f"\n\nFiles beside the folders: {files}.\n"


def written() -> dict[Path, str]:
    """Every page in docs/ that holds a map, as it should be."""
    pages = {ROOT / f"docs/reference/maps/{package}.md": page(package) for package in PACKAGES}
    architecture = ROOT / "docs/architecture.md"
    text = architecture.read_text()
    for package in PACKAGES:
        text = re.sub(
            rf"(<!-- map of {package} -->\n).*?(?=<!-- end of map -->)",
            lambda match, package=package: f"{match[1]}\n{summary(package)}\n",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return pages | {architecture: text}


def page(package: str) -> str:
    """The map of one package as a page of Markdown."""
    top = ROOT / package
    parts = [f"# Map of {package}\n", f"{cell(first_line(top))}\n"]
    if children(top):
        parts += ["The last column lists the folders that an import contract in `pyproject.toml` allows.\n"]
        parts += [folder_table(top)]
    for folder in folders(top):
        parts.append(f"## {folder.relative_to(ROOT)}/\n")
        parts.append(f"{cell(first_line(folder))}\n")
        rows = [f"| `{path.name}` | {cell(first_line(path))} |" for path in modules(folder)]
        if rows:
            parts.append("\n".join(["| file | holds |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def cell(text: str) -> str:
    """Text for a cell of a Markdown table: code as such, and nothing that Markdown would read as its own."""
    text = re.sub(r"``([^`]+)``", lambda match: f"`{match[1]}`", text)
    pieces = re.split(r"(`[^`]*`)", text)
    safe = [piece if piece.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", piece) for piece in pieces]
    return "".join(safe).replace("|", "\\|")


def terminal(folder: Path, *, files: bool, width: int = 118) -> Iterator[str]:
    """The map of a folder as lines for a terminal; without ``files`` its folders only."""
    for child in folders(folder):
        depth = len(child.relative_to(folder).parts)
        yield from _line(f"{'  ' * depth}{child.relative_to(ROOT) if child == folder else child.name}/", child, width)
        below = may_import(child)
        if below is not None and not files:
            yield " " * 32 + f"may import: {', '.join(below) or 'none of its neighbours'}"
        for path in modules(child) if files else ():
            yield from _line(f"{'  ' * (depth + 1)}{path.name}", path, width)


def _line(name: str, path: Path, width: int) -> list[str]:
    indent = " " * 32
    first = f"{name:<32}" if len(name) < 32 else f"{name}\n{indent}"
    return (first + textwrap.fill(first_line(path), width - 32).replace("\n", f"\n{indent}")).split("\n")


def main(arguments: list[str]) -> int:
    """Print the folders of all packages, or the files of those that are named; or write the maps in docs/."""
    if arguments == ["--write"]:
        for path, text in written().items():
            path.write_text(text)
        return 0
    for name in arguments or PACKAGES:
        folder = ROOT / name.strip("/")
        if not folder.is_dir():
            print(f"scripts/maps: {name} is not a folder; the packages are {', '.join(PACKAGES)}", file=sys.stderr)
            return 2
        print("\n".join(terminal(folder, files=bool(arguments))))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "scripts/maps gcl | head" ends quietly
    sys.exit(main(sys.argv[1:]))
