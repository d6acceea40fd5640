"""Inventory page: the counts in the documentation of what is honoured, refused, and said to have no effect."""

from __future__ import annotations

from tests.helpers.mpi_jobs import ROOT

PAGE = ROOT / "docs" / "reference" / "inventory.md"


def assert_counts(subject: str, *counts: int) -> None:
    """Compare the counts of an inventory, in the order of the columns, with its line of the page."""
    line = f"| {subject} | {' | '.join(f'{count:,}' for count in counts)} |"
    assert line in PAGE.read_text(), f"{PAGE} lacks the line {line}"
