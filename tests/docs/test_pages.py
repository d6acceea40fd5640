"""Pages: paths that they name exist, links lead somewhere, terms are defined once."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from popdist_py import environment
from tests.helpers.mpi_jobs import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    *(path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(path.parts)),
]
TOP = ("poprun_py", "ipu_emu", "gcl", "popdist_py", "tests", "scripts", "docs", "examples", "benchmarks", "deploy")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_paths_that_a_page_names_exist(page):
    text = re.sub(r"^ *# \S+\.py$", "", page.read_text(), flags=re.MULTILINE)  # files of recipes, some of them new
    named = re.findall(rf"(?<![\w/.-])(?:{'|'.join(TOP)})/[\w./-]*[\w/]", text)
    paths = [path for path in named if not path.startswith("docs/_build")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@every_page
def test_relative_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    generated = re.compile(r"(^|/)generated/")
    assert [link for link in links if not generated.search(link) and not (page.parent / link).exists()] == []


@every_page
def test_no_page_sends_users_to_tools_of_the_pod(page):
    assert re.findall(r"`gc-\w+", page.read_text()) == []


def table_of(page: str, heading: str) -> list[list[str]]:
    """The rows, without the head, of the first table after a heading."""
    _, _, text = (ROOT / page).read_text().partition(f"\n## {heading}\n")
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_twelve_walks_lead_from_a_folder_to_a_file_in_it():
    rows = table_of("docs/architecture.md", "Where would I change ...?")
    assert len(rows) == 12
    for what, folders, files in rows:
        named = re.findall(r"`([\w/]+\.py)`", files)
        assert named, what
        for folder in re.findall(r"`([\w/]+)`", folders):
            assert any(name.startswith(f"{folder}/") for name in named), (what, folder)


def test_a_term_has_one_row_in_the_glossary():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    terms = [term for term, _ in rows if term not in ("term", "---")]
    assert len(terms) > 100
    assert len(set(terms)) == len(terms)
    single = {re.sub(r" \(.*", "", name) for term in terms for name in term.split(", ")}
    required = (
        "host instance replica IPU tile IPU-Machine Pod IPU-Link_domain GW-Link micro-batch gradient_accumulation "
        "stage slot step anchor stash shard fragment feed Streaming_Memory remote_buffer executable step_program "
        "wall_time modelled_time ring method rendezvous zero-copy liveness bucket global_index local_index"
    )
    assert {word.replace("_", " ") for word in required.split()} - single == set()


def test_the_page_of_variables_names_what_the_code_reads():
    page = (ROOT / "docs/reference/environment.md").read_text()
    named = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", page))
    packages = ("poprun_py", "ipu_emu", "gcl", "popdist_py")
    code = "\n".join(path.read_text() for package in packages for path in (ROOT / package).rglob("*.py"))
    assert {name for name in named if name not in code} == set()
    assert {name for name in environment.NAMES.values() if name not in named} == set()
    variables = r"\b(?:POPDIST|IPU_EMU|GCL)_[A-Z_]+(?=\")"
    inner = {"IPU_EMU_FEED_REPORTS", "IPU_EMU_FEED_STEPS", "GCL_LIBRARY_PATH", "GCL_GP_PATH"}
    assert set(re.findall(variables, code)) - named - inner == set()


def test_the_front_end_of_the_recipe_runs():
    _, _, text = (ROOT / "docs/guides/recipes.md").read_text().partition("## Add a front end")
    source = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.stdout, done.stderr) == ("[0.        0.7615942]\n", "")
