"""Import cycles: no module of the packages imports itself through others, at the top, in functions or by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from docs._ext.package_maps import PACKAGES, ROOT, dotted, folders, modules


def imported_names(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a module imports, wherever: those of ``from a import b`` are a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def imports(files: dict[str, str]) -> dict[str, set[str]]:
    """The modules of ``files``, texts by dotted names, that each of them imports."""
    result: dict[str, set[str]] = {}
    for module, text in files.items():
        names = set(imported_names(ast.parse(text)))
        owners = {name if name in files else name.rpartition(".")[0] for name in names}
        result[module] = owners & files.keys() - {module}
    return result


def cycle(files: dict[str, str]) -> str:
    """A cycle of imports as ``a -> b -> a``; '' if there is none."""
    try:
        TopologicalSorter(imports(files)).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1][::-1])
    return ""


def sources() -> dict[str, str]:
    """The text of every module of the packages, by dotted name."""
    paths: list[Path] = []
    for package in PACKAGES:
        for folder in folders(ROOT / package):
            paths += [folder / "__init__.py", *modules(folder)]
    return {dotted(path).removesuffix(".__init__"): path.read_text() for path in paths}


def test_no_module_imports_itself_through_others() -> None:
    assert cycle(sources()) == ""


@pytest.mark.parametrize(
    "back",
    [
        "import gcl.a",
        "from gcl import a",
        "def later():\n    from gcl.a import name",
        "from importlib import import_module\ndef later():\n    return import_module('gcl.a')",
        "import importlib\nmodule = importlib.import_module('gcl.a')",
        "if TYPE_CHECKING:\n    from gcl.a import Name",
    ],
)
def test_a_cycle_in_any_form_is_named(back: str) -> None:
    files = {"gcl": "", "gcl.a": "from gcl.b import name", "gcl.b": "import gcl.c\nimport numpy", "gcl.c": back}
    links = cycle(files).split(" -> ")
    assert links[0] == links[-1]
    assert sorted(links[1:]) == ["gcl.a", "gcl.b", "gcl.c"]
    assert all(target in imports(files)[module] for module, target in pairwise(links))
    assert cycle(files | {"gcl.c": "name = 'gcl.a'"}) == ""
