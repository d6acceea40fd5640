"""Package maps: every module has a summary of one line, and the maps list every module."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from docs._ext.package_maps import PACKAGES, ROOT, docstring, folders, main, may_import, modules, page, written

#: A longer summary takes more than two lines in a table or a terminal.
LONGEST = 120
#: Files of every package, which are not counted among the entries of its folder.
PACKAGE_FILES = ("__init__.py", "__main__.py", "py.typed")


def undocumented(package: str) -> list[str]:
    """Modules whose summary is missing, too long, without a full stop, or longer than one line."""
    paths = [path for folder in folders(ROOT / package) for path in (folder, *modules(folder))]
    summaries = {path: docstring(path).split("\n") for path in paths}
    return [
        f"{path.relative_to(ROOT)}: {first}"
        for path, (first, *rest) in summaries.items()
        if not first.endswith(".") or len(first) > LONGEST or (rest and rest[0])
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_one_line_summary(package: str) -> None:
    assert undocumented(package) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_has_a_row_for_every_tracked_module(package: str) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", f"{package}/*.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    expected = [(str(path.parent), path.name) for path in map(Path, tracked) if (ROOT / path).exists()]
    listed, folder = [], ""
    for line in page(package).splitlines():
        if heading := re.fullmatch(r"## (.*)/", line):
            folder = heading[1]
            listed.append((folder, "__init__.py"))
        elif row := re.match(r"\| `([^`/]+\.py)` \| (.+) \|", line):
            listed.append((folder, row[1]))
    assert sorted(listed) == sorted(expected)


def test_the_maps_in_the_documentation_are_up_to_date() -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in written().items() if path.read_text() != text]
    assert stale == [], "run scripts/maps --write"


def test_no_folder_has_more_than_20_entries() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    paths = {path for file in tracked for path in (Path(file), *Path(file).parents) if (ROOT / file).exists()}
    entries = Counter(path.parent for path in paths - {Path()} if path.name not in PACKAGE_FILES)
    assert {str(folder): count for folder, count in entries.items() if count > 20} == {}


def test_the_order_of_the_packages_is_that_of_the_import_contract() -> None:
    assert may_import(ROOT / "gcl") == ["popdist_py"]
    assert may_import(ROOT / "ipu_emu") == may_import(ROOT / "poprun_py") == ["gcl", "popdist_py"]
    assert may_import(ROOT / "popdist_py") == []


def test_the_script_prints_folders_or_the_files_of_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "groups.py" not in capsys.readouterr().out
    assert main(["gcl/core"]) == 0
    assert re.search(r"^  groups\.py +Group: ", capsys.readouterr().out, re.MULTILINE)
    assert main(["gcl/nothing"]) == 2
    assert capsys.readouterr().err.startswith("scripts/maps: gcl/nothing is not a folder")


def test_the_maps_need_nothing_but_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", ROOT / "docs/_ext/package_maps.py", "popdist_py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "layout.py" in done.stdout
