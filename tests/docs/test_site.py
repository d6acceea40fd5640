"""The documentation site: it builds without a warning, and its reference has every public name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path

import click
import pytest

from tests.helpers.mpi_jobs import ROOT

PUBLIC = ("popdist_py", "popdist_py.popart", "gcl", "ipu_emu.popart", "ipu_emu.hostio", "ipu_emu.hostio.checkpoint")


def built(folder: Path) -> Path:
    """The site in ``folder``; every warning fails the test."""
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module, reason=f"{module} is missing: pip install 'poprun-py[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(page: Path) -> str:
    """The words of a page, without markup."""
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_the_site_has_every_public_name(tmp_path: Path) -> None:
    """One test for all, because the build takes half a minute of processor time."""
    site = built(tmp_path / "html")
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.load((site / "objects.inv").open("rb"), "", lambda base, name: name)
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert {f"{path}.{name}" for path in PUBLIC for name in import_module(path).__all__} - known == set()
    assert {"gcl.Communicator.all_reduce", "gcl.Handle.wait", "ipu_emu.popart.Builder.addInputTensor"} <= known
    generated = site / "reference/generated"
    check_ops(text_of(generated / "ops.html"))
    check_session_options(text_of(generated / "session-options.html"))
    check_commands(text_of(generated / "commands.html"))
    check_launcher_options(text_of(site / "reference/options.html"))


def check_ops(page: str) -> None:
    from ipu_emu.ops.table import TABLE
    from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
    from ipu_emu.popart.builder.ai_onnx import AI_ONNX

    words = set(re.findall(r"\w+", page))
    assert {type for _, type in TABLE.table} - words == set()
    refused = {"PackedDataBlock"}
    calls = {name for table in (AI_ONNX, AI_GRAPHCORE) for name, row in table.items() if row[0] not in refused}
    types = {name: row[0] for table in (AI_ONNX, AI_GRAPHCORE) for name, row in table.items()}
    in_table = {type for _, type in TABLE.table}
    assert {name for name in calls if types[name] in in_table} - words == set()


def check_session_options(page: str) -> None:
    from ipu_emu.popart import SessionOptions

    assert set(SessionOptions.defaults) - set(re.findall(r"\w+", page)) == set()


def check_commands(page: str) -> None:
    import gcl.bench
    import gcl.explain
    from ipu_emu.cli import main

    for command in (*main.commands.values(), gcl.bench.main, gcl.explain.main):
        spelled = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
        assert spelled - set(page.replace(",", " ").split()) == set(), command.name
    assert "python -m ipu_emu.compat" in page


def check_launcher_options(page: str) -> None:
    from poprun_py.options.option_table import OPTIONS

    assert {f"--{name}" for option in OPTIONS for name in option.spellings} - set(
        page.replace(",", " ").split()
    ) == set()


@pytest.mark.parametrize("path", PUBLIC)
def test_every_public_function_and_class_has_a_docstring(path: str) -> None:
    module = import_module(path)
    values = {name: getattr(module, name) for name in module.__all__}
    parts = {f"{path}.{name}": value for name, value in values.items() if inspect.isclass(value) or callable(value)}
    for name, value in values.items():
        if inspect.isclass(value) and value.__module__.startswith(("gcl", "ipu_emu", "popdist_py")):
            parts |= {f"{path}.{name}.{key}": part for key, part in vars(value).items() if is_public_part(key, part)}
    assert [name for name, value in parts.items() if not own_docstring(value)] == []


def is_public_part(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(
        value, property | classmethod | staticmethod | type(is_public_part)
    )


def own_docstring(value: object) -> str:
    """The docstring of an object, unless Python generated it (dataclasses) or a base class has it."""
    text = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
    return "" if inspect.isclass(value) and text.startswith(f"{value.__name__}(") else text


def test_every_session_option_has_a_meaning() -> None:
    pytest.importorskip("sphinx", reason="sphinx is missing: pip install 'poprun-py[docs]'")
    from docs._ext.session_option_page import meanings, option_classes

    classes = option_classes()
    assert "SessionOptions" in {kind.__name__ for kind in classes}
    assert {kind.__name__: list(meanings(kind)) for kind in classes} == {
        kind.__name__: [name for name in vars(kind)["defaults"] if name not in kind.without_effect]
        for kind in classes
    }
