"""Names: values are named by the noun that they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Words that say nothing about a value.
WORDS = {"one", "found", "made", "each", "given", "asked", "kept", "whole", "beside"}
PACKAGES = ("gcl", "popdist_py", "poprun_py", "ipu_emu", "benchmarks", "docs", "examples", "scripts", "tests")


def named(text: str) -> set[str]:
    """The names of variables, arguments, fields, functions and classes in a module."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return names | {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("package", PACKAGES)
def test_values_are_named_by_their_nouns(package: str) -> None:
    names = {path: sorted(named(path.read_text()) & WORDS) for path in (ROOT / package).rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): words for path, words in names.items() if words}


def test_every_kind_of_name_is_found() -> None:
    text = (
        "one: int = 1\ndef found(made): [each for each in made]\nclass given: asked = 2\nwith f() as kept: whole += 1"
    )
    assert named(text) & WORDS == WORDS - {"beside"}
