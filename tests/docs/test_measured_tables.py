"""Measured tables: the tables in pages equal those made from the stored rows; one command writes them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import ROOT

TABLES = runpy.run_path(str(ROOT / "benchmarks/tables.py"))
PAGES = TABLES["pages"]()


def row(case: str, **more: object) -> dict[str, object]:
    return {"case": case, "unit": "ms", "ours": 2.0, "peers": {"peer": 3.0}, "ratio": 1.5, **more}


def test_pages() -> None:
    assert {page.name for page in PAGES} >= {"performance.md", "performance-training.md", "torch-backend.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_its_rows(page: Path) -> None:
    text = page.read_text()
    assert TABLES["with_tables"](text) == text, "python benchmarks/tables.py writes the tables of all pages"


def test_all_rows_are_shown() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    for file in (ROOT / "docs/measurements").iterdir():
        assert f"<!-- rows of {file.name} -->" in shown


def test_tables_are_replaced_and_the_text_around_them_is_kept(tmp_path: Path) -> None:
    rows = [
        row("net, training, 1 process", failed={}, load=3.4),
        row("all-reduce float32 P=2 1 KiB"),
        row("start", load=12.0),
        row("end"),
    ]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    page = "before\n<!-- rows of some.json -->\nold\n<!-- end of rows -->\nafter\n"
    text = TABLES["with_tables"](page, tmp_path)
    assert text.startswith("before\n<!-- rows of some.json -->\n")
    assert text.endswith("<!-- end of rows -->\nafter\n")
    assert "old" not in text
    for line in (
        "| net | 2 | 3, **1.50** | 3 |",
        "| 1 KiB | 2 us | 3 us (peer) | **1.50** |",
        "| start | 2 ms | 3 ms | **1.50** | 12 |",
        "| end | 2 ms | 3 ms | **1.50** |  |",
    ):
        assert line in text.splitlines()
    assert TABLES["with_tables"](text, tmp_path) == text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.0206, "ms", "20.6 us"), (0.2, "s", "200 ms"), (1500.0, "ms", "1.5 s"), (620.4, "MB", "620 MB")],
)
def test_a_time_has_the_unit_that_is_easiest_to_read(value: float, unit: str, shown: str) -> None:
    assert TABLES["quantity"](value, unit) == shown


def test_a_file_that_holds_no_rows(tmp_path: Path) -> None:
    page = "<!-- rows of none.json -->\n<!-- end of rows -->"
    with pytest.raises(SystemExit, match=r"cannot read rows from .*none\.json.*write it with --json"):
        TABLES["with_tables"](page, tmp_path)
