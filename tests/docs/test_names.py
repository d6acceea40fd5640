"""Names: values are named by the noun that they hold, in the folders that are listed here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Words that say nothing about a value.
WORDS = {"one", "found", "made", "each", "given", "asked", "kept", "whole", "beside"}
FOLDERS = [
    *("gcl", "popdist_py", "poprun_py", "benchmarks", "docs", "examples", "scripts"),
    *(f"ipu_emu/{name}" for name in ("cli", "compat", "engine", "graph", "hardware", "hostio", "ops", "program")),
    *(f"ipu_emu/{name}" for name in ("tensorflow", "torch", "trace")),
    *(f"tests/{name}" for name in ("golden", "helpers", "hostile", "numerics", "programs")),
]
#: Parts of these folders whose names are not yet nouns.
OTHERS = {
    *("ipu_emu/cli/arguments/compile_model.py", "ipu_emu/hostio/data", "ipu_emu/ops/codegen/gemm.py"),
    *("ipu_emu/ops/updates", "ipu_emu/tensorflow/api/config.py", "ipu_emu/tensorflow/importer/folding.py"),
}


def named(text: str) -> set[str]:
    """The names of variables, arguments, fields, functions and classes in a module."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return names | {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(
    "folder", [name for top in FOLDERS for name in (top, f"tests/{top}") if (ROOT / name).exists()]
)
def test_values_are_named_by_their_nouns(folder: str) -> None:
    files = {path.relative_to(ROOT): path for path in (ROOT / folder).rglob("*.py")}
    names = {
        str(file): sorted(named(path.read_text()) & WORDS)
        for file, path in files.items()
        if not any(file.is_relative_to(other) for other in OTHERS)
    }
    assert not {file: words for file, words in names.items() if words}


def test_every_kind_of_name_is_found() -> None:
    text = (
        "one: int = 1\ndef found(made): [each for each in made]\nclass given: asked = 2\nwith f() as kept: whole += 1"
    )
    assert named(text) & WORDS == WORDS - {"beside"}
