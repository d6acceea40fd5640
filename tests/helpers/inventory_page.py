"""Inventory page: the counts in the documentation of what is honoured, refused, and said to have no effect."""

from __future__ import annotations

from tests.helpers.mpi_jobs import ROOT

PAGE = ROOT / "docs" / "reference" / "inventory.md"


def assert_counts(subject: str, honoured: int, refused: int, said: int) -> None:
    """Compare the counts of an inventory with its line of the page."""
    line = f"| {subject} | {honoured:,} | {refused:,} | {said:,} |"
    assert line in PAGE.read_text(), f"{PAGE} lacks the line {line}"
